"""The SQL database: SQLite beside the embedded index, PostgreSQL in a cluster; one engine, one chain of migrations."""
