"""The graph on Kubernetes: the Serve config made of the settings, and the manifests around it checked."""
