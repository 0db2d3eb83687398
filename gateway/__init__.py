"""The memory gateway: ``POST /memories/search`` over the graph or an upstream memory service (seed 2)."""
