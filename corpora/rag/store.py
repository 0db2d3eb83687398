"""The index backends as a corpus sees them: its sources by space and id."""

from collections.abc import Sequence

from contracts.ports import Embeddable, NodeMeta, Recalled, RecallQuery, WritableIndex
from contracts.records import ModelRef
from corpora.rag.documents import index_source


class IndexStore:
    """See ``corpora.rag.ports.VectorStore``.

    Args:
        index: Open for writing.
    """

    def __init__(self, index: WritableIndex) -> None:
        self._index = index

    async def upsert(
        self, account_id: str, space: str, corpus: str, documents: Sequence[Embeddable], model: ModelRef
    ) -> None:
        """See ``VectorStore``; errors as ``contracts.ports.IndexWriter.put``."""
        await self._index.put(account_id, index_source(space, corpus), documents, model)

    async def search(self, query: RecallQuery) -> Recalled:
        """See ``VectorStore``."""
        (found,) = await self._index.recall([query])
        return found

    async def delete(self, account_id: str, space: str, corpus: str, source_ids: Sequence[str]) -> None:
        """See ``VectorStore``."""
        await self._index.drop(account_id, index_source(space, corpus), source_ids)

    async def get(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``VectorStore``."""
        return await self._index.meta(account_id, uris)

    async def fingerprints(self, account_id: str, space: str, corpus: str) -> dict[str, str]:
        """Fingerprint by id of the sources that are stored whole."""
        return await self._index.documents(account_id, index_source(space, corpus))

    async def optimize(self) -> None:
        """See ``contracts.ports.IndexWriter``."""
        await self._index.optimize()
