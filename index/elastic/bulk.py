"""Bulk writes with back-pressure: bounded requests, patience with a busy cluster, and failures told by name."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, Self

import msgspec
import orjson
from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.errors import InvalidInput, StageFailed, StrataError
from index.elastic.client import error_type, reason
from index.elastic.config import WriteConfig
from index.elastic.patience import delay

Action = Literal["index", "upsert", "delete"]

# No answer, or too busy to give one: sent again. Ids are given, so what was done all the same is not done twice.
_AGAIN = frozenset({0, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_BLOCKED, _MISSING = "cluster_block_exception", "index_not_found_exception"
# Deletes are short, their answers are not.
_MOST_ITEMS = 5_000
_LISTED = 5
# All that is looked at of an answer; the reasons in it would quote documents.
_WANTED = "errors,items.*.status,items.*.error.type,items.*.error.caused_by.type"


class WriteBlocked(Exception):
    """An index takes no writes, or is gone: another version takes its place. Look up the index again and repeat."""


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One change of one document.

    Args:
        action: ``index`` replaces, ``upsert`` merges into what is there or makes it.
        index: Name of an index or alias.
        id: Of the document.
        routing: Its routing value, where the index has one.
        document: The document, or for an upsert its changed fields; may hold NumPy arrays. None for a delete.
        name: What errors call it, for instance its URI; by default its id.
        version: Given, a document of a higher version stays as it is, and that is no failure.
        alias: Whether ``index`` must be an alias; else an index of that name is made where there is none.
    """

    action: Action
    index: str
    id: str
    routing: str | None = None
    document: Mapping[str, Any] | None = None
    name: str = ""
    version: int | None = None
    alias: bool = False

    def lines(self) -> bytes:
        """Its lines of a bulk request, each with its end."""
        target: dict[str, Any] = {"_index": self.index, "_id": self.id}
        if self.routing is not None:
            target["routing"] = self.routing
        if self.version is not None:
            target |= {"version": self.version, "version_type": "external_gte"}
        if self.alias:
            target["require_alias"] = True
        merges = self.action == "upsert"
        head = orjson.dumps({"update" if merges else self.action: target}, option=orjson.OPT_APPEND_NEWLINE)
        if self.document is None:
            return head
        body = {"doc": self.document, "doc_as_upsert": True} if merges else self.document
        return head + orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


class _Item(NamedTuple):
    """An operation as it is sent, again and again if need be; the document itself is no longer held."""

    name: str
    action: Action
    lines: bytes
    versioned: bool
    alias: bool


class _Refusal(NamedTuple):
    """What was not done, and why.

    Args:
        item: What.
        status: The HTTP status; 0 without an answer.
        why: The same in a few words.
        alone: Whether the answer is about this item, not about the whole request.
    """

    item: _Item
    status: int
    why: str
    alone: bool

    @classmethod
    def of(cls, item: _Item, answer: Mapping[str, Any]) -> Self | None:
        """What an answer says of an item; ``None`` when it is done, or there was nothing to do any more."""
        status = answer["status"]
        gone = item.action == "delete" and status == HTTPStatus.NOT_FOUND and "error" not in answer
        outdated = item.versioned and status == HTTPStatus.CONFLICT
        done = status < HTTPStatus.MULTIPLE_CHOICES or gone or outdated
        return None if done else cls(item, status, error_type(answer), alone=True)

    def elsewhere(self) -> bool:
        """Whether another index version has taken the place of the one that was written to."""
        gone = self.item.alias and self.status == HTTPStatus.NOT_FOUND and self.why.startswith(_MISSING)
        return gone or (self.status == HTTPStatus.FORBIDDEN and self.why.startswith(_BLOCKED))


class Bulk:
    """Writes many documents.

    Args:
        client: Of the cluster.
        config: Sizes, and how patient it is.
        sleep: How it waits, in seconds.
    """

    def __init__(
        self,
        client: AsyncElasticsearch,
        config: WriteConfig,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._config = config
        self._sleep = sleep
        self._slots = asyncio.Semaphore(config.in_flight)

    async def write(self, operations: Iterable[Operation]) -> None:
        """Carry out operations, in no order among them: a document is named at most once.

        Side by side with other calls, ``in_flight`` requests are under way at most, and operations are only taken when
        there is room for the next one. What the cluster was too busy for, or what got lost on the way, is sent again.
        After the first other failure no further request begins.

        Raises:
            InvalidInput: Documents do not fit the mapping (their names are in the message).
            WriteBlocked: The index takes no writes now, or an alias is gone.
            StageFailed: Anything else was not done; all that was acknowledged stays.
        """
        chunks = self._chunks(operations)
        refused: list[_Refusal] = []

        async def work() -> None:
            while True:
                async with self._slots:
                    if (chunk := next(chunks, None)) is None:
                        return
                    if found := await self._send(chunk):
                        refused.extend(found)
                        chunks.close()

        workers = [work() for _ in range(self._config.in_flight)]
        # A failure must not cut off requests whose outcome nobody would know then.
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if refused:
            raise _failure(refused)

    def _chunks(self, operations: Iterable[Operation]) -> Generator[list[_Item]]:
        chunk: list[_Item] = []
        size = 0
        for operation in operations:
            item = _Item(
                operation.name or operation.id,
                operation.action,
                operation.lines(),
                versioned=operation.version is not None,
                alias=operation.alias,
            )
            if chunk and (size + len(item.lines) > self._config.bulk_bytes or len(chunk) == _MOST_ITEMS):
                yield chunk
                chunk, size = [], 0
            chunk.append(item)
            size += len(item.lines)
        if chunk:
            yield chunk

    async def _send(self, items: Sequence[_Item]) -> list[_Refusal]:
        """Send items until each is done or refused for good; returns the refused ones."""
        refused: list[_Refusal] = []
        for attempt in range(self._config.attempts):
            if attempt:
                await self._sleep(delay(self._config, attempt))
            busy: list[_Refusal] = []
            for refusal in await self._request(items):
                (busy if refusal.status in _AGAIN else refused).append(refusal)
            if not busy:
                return refused
            items = [refusal.item for refusal in busy]
        return refused + busy

    async def _request(self, items: Sequence[_Item]) -> list[_Refusal]:
        try:
            answer = await self._client.bulk(operations=[item.lines for item in items], filter_path=_WANTED)  # type: ignore[misc]
        except TransportError as error:
            return [_Refusal(item, 0, reason(error), alone=False) for item in items]
        except ApiError as error:
            return [_Refusal(item, error.status_code, error_type(error.body), alone=False) for item in items]
        if not answer["errors"]:
            return []
        results = (result for entry in answer["items"] for result in entry.values())
        return [found for item, result in zip(items, results, strict=True) if (found := _Refusal.of(item, result))]


def _failure(refused: Sequence[_Refusal]) -> StrataError | WriteBlocked:
    """What to raise: what the documents are to blame for comes first, as waiting does not mend it."""
    if wrong := [refusal for refusal in refused if refusal.alone and refusal.status == HTTPStatus.BAD_REQUEST]:
        return InvalidInput(
            f"Elasticsearch does not take {_listed(wrong)}.",
            field="nodes",
            remedy="Correct them and ingest again.",
        )
    if any(refusal.elsewhere() for refusal in refused):
        return WriteBlocked()
    busy = all(refusal.status in _AGAIN for refusal in refused)
    return StageFailed(
        f"Elasticsearch did not write {_listed(refused)}.",
        remedy="Ingest again once it has recovered: what is done is not done twice." if busy else "",
        stage="ingest",
    )


def _listed(refused: Sequence[_Refusal]) -> str:
    shown = ", ".join(
        f"{refusal.item.name} ({f'HTTP {refusal.status} ' if refusal.status else ''}{refusal.why})"
        for refusal in refused[:_LISTED]
    )
    more = f" and {len(refused) - _LISTED:,} more" if len(refused) > _LISTED else ""
    return f"{len(refused):,} of the records: {shown}{more}"
