"""Thin deployments, one a stage, around the pure stages of the same names; each replica imports only what it needs."""
