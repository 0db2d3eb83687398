"""A real Elasticsearch for development and tests, without Docker: its jars from Maven on a JDK of this machine.

``jdk`` finds the JDK, ``distribution`` fetches the jars, ``node`` runs one node, ``cluster`` one or three of them.
"""
