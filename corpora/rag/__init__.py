"""The RAG core: one engine under every corpus (R1–R9); a corpus is an adapter beside it."""
