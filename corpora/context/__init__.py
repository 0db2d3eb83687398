"""Layered context (L0, L1, L2): folders of Markdown, records, dialogues and Python libraries."""
