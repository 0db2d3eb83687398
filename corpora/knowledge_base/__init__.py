"""The knowledge base (K1–K8): entities with hard filters over their chunks, found by meaning and words, no leaks."""
