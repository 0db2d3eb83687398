"""Embedding models and cross-encoders: what is known by name, how it is found on a machine, and how it runs."""
