"""The embedded index: LanceDB for what is searched, SQLite for what is read, in one folder on one machine."""

from index.embedded.config import EmbeddedConfig
from index.embedded.index import EmbeddedIndex, IndexStats

__all__ = ["EmbeddedConfig", "EmbeddedIndex", "IndexStats"]
