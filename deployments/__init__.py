"""Everything that runs: the graph on Ray Serve, the HTTP API, settings, keys, metrics and the command line."""
