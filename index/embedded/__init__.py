"""The embedded index: LanceDB for what is searched, SQLite for what is read, in one folder on one machine.

Nothing is imported here: settings need ``index.embedded.config`` alone, and LanceDB, whose threads do not survive a
fork, is loaded by those who open an index.
"""
