"""The chain of revisions; ``database/migrate.py`` runs it."""
