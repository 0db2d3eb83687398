"""The stages of the retrieval chain: pure async logic, one role a file, and the chain that runs them in order."""
