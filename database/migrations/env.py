"""What Alembic runs: the revisions, on the connection and in the transaction that ``database/migrate.py`` holds.

It is told nothing of ``database/tables.py``: a revision names each constraint in full, and stays as it is.
"""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
