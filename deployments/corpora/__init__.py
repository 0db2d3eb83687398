"""Corpora as a service: their HTTP routes, the deployment that ingests, metrics and logs."""
