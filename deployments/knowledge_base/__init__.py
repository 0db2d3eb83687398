"""The knowledge base on Ray Serve: its deployments, its handle for other applications, and a route when switched on."""
