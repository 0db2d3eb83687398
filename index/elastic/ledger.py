"""The ledger: what of an account shows, which commits are under way, its documents and the ingest journal.

A commit brings new revisions of documents beside the old ones, and one write switches from these to those: that of
the account's state, which says what is hidden. Every write of a state is conditional on the state it was read in
(``if_seq_no``), so two writers never overwrite each other. All is read in real time, by id, except listings.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from elasticsearch import AsyncElasticsearch, ConflictError, NotFoundError

from contracts.errors import StageFailed
from contracts.ports import JournalEntry, JournalState
from index.elastic.bulk import Bulk, Operation
from index.elastic.client import TimedClient
from index.elastic.config import WriteConfig
from index.elastic.mapping import digest
from index.elastic.patience import patiently
from index.elastic.scan import scan
from index.elastic.state import Commit, State, now

T = TypeVar("T")
_ATTEMPTS = 50


class Ledger:
    """Reads and writes the ledger index.

    Args:
        client: To the cluster.
        name: Of the index.
        config: How is written.
    """

    def __init__(self, client: AsyncElasticsearch, name: str, config: WriteConfig) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._clients = TimedClient(client)
        self._name = name
        self._config = config
        self._bulk = Bulk(client, config)

    async def states(self, accounts: Iterable[str], seconds: float | None = None) -> dict[str, State]:
        """The states of accounts, now.

        Args:
            accounts: Which.
            seconds: How long it may take; as long as a write when left out.
        """
        ids = {digest("state", account): account for account in accounts}
        return {ids[doc["_id"]]: _state(doc) for doc in await self._get(list(ids), ["body"], seconds)}

    async def change(self, account_id: str, change: Callable[[State], State]) -> State:
        """Change an account's state, again and again until no other writer comes between.

        Args:
            account_id: The account.
            change: From the present state to the next; may raise.

        Returns:
            The state that was written.

        Raises:
            StageFailed: Others came between too often.
        """
        key = digest("state", account_id)
        for _ in range(_ATTEMPTS):
            try:
                read = await self._patiently(self._client.get, id=key)
                condition: dict[str, Any] = {"if_seq_no": read["_seq_no"], "if_primary_term": read["_primary_term"]}
                held = _state(read)
            except NotFoundError:
                condition, held = {"op_type": "create"}, State()
            changed = change(held)
            document = {"account_id": account_id, "body": msgspec.to_builtins(changed)}
            try:
                await self._patiently(self._client.index, id=key, document=document, **condition)
            except ConflictError:
                await self._pause()
                continue
            return changed
        raise StageFailed(
            "Too many writers are changing this account at once.",
            remedy="Ingest fewer sources of an account side by side.",
            stage="ingest",
        )

    async def put_commit(self, commit: Commit) -> None:
        """Keep what a commit is about to change."""
        document = {"account_id": commit.account_id, "body": msgspec.to_builtins(commit)}
        key = _commit_id(commit.account_id, commit.number)
        await self._patiently(self._client.index, id=key, document=document)

    async def commit(self, account_id: str, number: int) -> Commit | None:
        """A commit under way; ``None`` when its writer died before it could say what it was about."""
        try:
            read = await self._patiently(self._client.get, id=_commit_id(account_id, number))
        except NotFoundError:
            return None
        return msgspec.convert(read["_source"]["body"], Commit)

    async def drop_commit(self, account_id: str, number: int) -> None:
        """Forget a commit; one that is not there is forgotten already."""
        await self._patiently(self._client.options(ignore_status=404).delete, id=_commit_id(account_id, number))

    async def revisions(self, account_id: str, source_id: str, documents: Iterable[str]) -> dict[str, int]:
        """Revision by document id of those that are stored, now."""
        ids = {_document_id(account_id, source_id, name): name for name in documents}
        found = await self._get(list(ids), ["revision"])
        return {
            ids[doc["_id"]]: doc["_source"]["revision"]
            for doc in found
            if doc.get("found") and "revision" in doc["_source"]
        }

    async def store(self, commit: Commit) -> None:
        """Note that the documents of a commit are stored, or take out those that it removes."""
        stored = {
            "account_id": commit.account_id,
            "source_id": commit.source_id,
            "state": "stored",
            "updated_at": now(),
        }
        await self._bulk.write(
            Operation(
                "delete" if commit.removes else "index",
                self._name,
                _document_id(commit.account_id, commit.source_id, each.document_id),
                document=None
                if commit.removes
                else {
                    **stored,
                    "document_id": each.document_id,
                    "revision": each.revision,
                    "fingerprint": each.fingerprint,
                },
                name=each.document_id,
            )
            for each in commit.documents
        )

    async def record(
        self, account_id: str, source_id: str, document_ids: Iterable[str], state: JournalState, detail: str
    ) -> None:
        """See ``IngestJournal.record``."""
        noted = {
            "account_id": account_id,
            "source_id": source_id,
            "state": state,
            "detail": detail,
            "updated_at": now(),
        }
        await self._bulk.write(
            Operation(
                "upsert",
                self._name,
                _document_id(account_id, source_id, name),
                document={**noted, "document_id": name},
                name=name,
            )
            for name in document_ids
        )

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """Fingerprint by document id of what is stored."""
        wanted = [{"term": {"account_id": account_id}}, {"term": {"source_id": source_id}}]
        stored = {"bool": {"filter": [*wanted, {"exists": {"field": "revision"}}]}}
        found = await self._scan(stored, ["document_id", "fingerprint"])
        return {each["document_id"]: each["fingerprint"] for each in found}

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        """See ``IngestJournal.unfinished``; oldest first."""
        left = {
            "bool": {
                "filter": [{"term": {"account_id": account_id}}, {"exists": {"field": "state"}}],
                "must_not": [{"term": {"state": "stored"}}],
            }
        }
        found = await self._scan(left, ["source_id", "document_id", "state", "detail", "updated_at"])
        return sorted(
            (msgspec.convert(each, JournalEntry) for each in found),
            key=lambda entry: (entry.updated_at, entry.source_id, entry.document_id),
        )

    async def empty(self) -> bool:
        """Whether no document is stored."""
        await self._refresh()
        found = await self._client.search(
            index=self._name,
            query={"exists": {"field": "revision"}},
            size=0,
            terminate_after=1,
            ignore_unavailable=True,
        )
        return not found["hits"]["total"]["value"]

    async def _get(
        self, ids: Sequence[str], fields: Sequence[str], seconds: float | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Documents by id; those of a ledger that does not exist yet are not found."""
        client = self._clients.within(seconds) if seconds else self._client
        found = (await client.mget(index=self._name, ids=ids, source_includes=fields))["docs"]
        for doc in found:
            error = doc.get("error", {}).get("type", "index_not_found_exception")
            if error != "index_not_found_exception":
                raise StageFailed(f"The ledger could not be read: {error}.", remedy="Retry.", stage="index")
        return found  # type: ignore[no-any-return]

    async def _scan(self, query: Mapping[str, Any], fields: Sequence[str]) -> list[Mapping[str, Any]]:
        """All documents of a listing, as they are now."""
        await self._refresh()
        return [hit["_source"] async for hit in scan(self._client, self._name, query, fields)]

    async def _patiently(self, call: Callable[..., Awaitable[T]], **named: Any) -> T:
        return await patiently(self._config, call, index=self._name, **named)

    async def _refresh(self) -> None:
        await self._client.indices.refresh(index=self._name, ignore_unavailable=True)

    async def _pause(self) -> None:
        await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - jitter, so that writers do not meet again


def _state(document: Any) -> State:
    return msgspec.convert(document["_source"]["body"], State) if document.get("found") else State()


def _commit_id(account_id: str, number: int) -> str:
    return digest("commit", account_id, number)


def _document_id(account_id: str, source_id: str, document_id: str) -> str:
    return digest("document", account_id, source_id, document_id)
