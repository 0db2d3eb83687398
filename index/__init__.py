"""Where records live: text analysis and lexical scores, chunking and ingest, and the index backends."""
