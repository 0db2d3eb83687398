"""The index on Elasticsearch: mappings, queries and store; ``devnode`` runs a small cluster on this machine.

Nothing is imported here: settings need the configuration alone, and the client is loaded by those who open an index.
"""
