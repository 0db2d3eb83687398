"""Corpora as the commands reach them: over HTTP where a service is up, else in this process with its own worker."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol
from urllib.parse import quote

import typer

from contracts.errors import InvalidInput, NotFound, Overloaded
from deployments.cli import common

if TYPE_CHECKING:
    from contracts.context import RequestContext
    from corpora.rag.types import Receipt, Retrieved
    from deployments.cli.client import Client
    from deployments.corpora.local import LocalCorpora
    from deployments.corpora.messages import BatchReceipt
    from deployments.settings import Settings

CorpusOption = Annotated[str, typer.Option("--corpus", help="Name of the corpus; strata corpora lists them.")]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", help="A dimension of the corpus, as name=value; repeatable.")
]
UserOption = Annotated[str | None, typer.Option("--user", help="The same as --dim user_id=….")]
AssistantOption = Annotated[str | None, typer.Option("--assistant", help="The same as --dim assistant_id=….")]
ConversationOption = Annotated[str | None, typer.Option("--conversation", help="The same as --dim conversation_id=….")]
InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="Work in this process, even where a service is up.")
]

_POLL_S = 0.2
# How often a service without room is asked again.
_TRIES = 60


class Access(Protocol):
    """What the commands do with corpora."""

    async def names(self) -> tuple[str, ...]:
        """The corpora."""
        ...

    async def ingest(self, corpus: str, bodies: Sequence[dict[str, Any]]) -> "BatchReceipt":
        """Take bodies in."""
        ...

    async def settled(self, receipts: "Sequence[Receipt]") -> "list[Receipt]":
        """The same receipts once nothing is pending."""
        ...

    async def receipt(self, corpus: str, receipt_id: str) -> "Receipt":
        """What became of a submission."""
        ...

    async def delete(self, corpus: str, source_ids: Sequence[str], dimensions: Mapping[str, str]) -> "Receipt":
        """Remove sources."""
        ...

    async def retrieve(self, corpus: str, body: dict[str, Any]) -> "Retrieved":
        """Retrieve."""
        ...


class Remote:
    """Over HTTP.

    Args:
        client: To the service.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def names(self) -> tuple[str, ...]:
        """See ``Access``."""
        from deployments.corpora.messages import CorporaResponse  # noqa: PLC0415

        return self._client.call("GET", "/v1/corpora", CorporaResponse).corpora

    async def ingest(self, corpus: str, bodies: Sequence[dict[str, Any]]) -> "BatchReceipt":
        """See ``Access``; a service without room is asked again for a minute or so."""
        from deployments.corpora.messages import BatchReceipt  # noqa: PLC0415

        left = _TRIES
        while True:
            left -= 1
            try:
                return self._client.call(
                    "POST", f"{_at(corpus)}/ingest/batch", BatchReceipt, {"requests": list(bodies)}
                )
            except Overloaded as error:
                if not left:
                    raise
                await asyncio.sleep(error.retry_after)

    async def settled(self, receipts: "Sequence[Receipt]") -> "list[Receipt]":
        """See ``Access``."""
        found = list(receipts)
        for number, receipt in enumerate(found):
            while found[number].state == "pending":
                await asyncio.sleep(_POLL_S)
                found[number] = await self.receipt(receipt.corpus, receipt.receipt_id)
        return found

    async def receipt(self, corpus: str, receipt_id: str) -> "Receipt":
        """See ``Access``."""
        from corpora.rag.types import Receipt  # noqa: PLC0415

        return self._client.call("GET", f"{_at(corpus)}/receipts/{quote(receipt_id, safe='')}", Receipt)

    async def delete(self, corpus: str, source_ids: Sequence[str], dimensions: Mapping[str, str]) -> "Receipt":
        """See ``Access``."""
        from corpora.rag.types import Receipt  # noqa: PLC0415

        body = {"source_ids": list(source_ids), "dimensions": dict(dimensions)}
        return self._client.call("POST", f"{_at(corpus)}/sources/delete", Receipt, body)

    async def retrieve(self, corpus: str, body: dict[str, Any]) -> "Retrieved":
        """See ``Access``."""
        from corpora.rag.types import Retrieved  # noqa: PLC0415

        return self._client.call("POST", f"{_at(corpus)}/retrieve", Retrieved, body)


class Here:
    """In this process.

    Args:
        local: The corpora and their worker.
        ctx: Who asks.
    """

    def __init__(self, local: "LocalCorpora", ctx: "RequestContext") -> None:
        self._local = local
        self._ctx = ctx

    async def names(self) -> tuple[str, ...]:
        """See ``Access``."""
        return self._local.corpora.names

    async def ingest(self, corpus: str, bodies: Sequence[dict[str, Any]]) -> "BatchReceipt":
        """See ``Access``."""
        from deployments.corpora.messages import IngestBatchRequest  # noqa: PLC0415

        return await self._local.corpora.ingest_batch(self._ctx, corpus, IngestBatchRequest(requests=list(bodies)))

    async def settled(self, receipts: "Sequence[Receipt]") -> "list[Receipt]":
        """See ``Access``; whatever else is due is written, too."""
        await self._local.work()
        return [await self.receipt(receipt.corpus, receipt.receipt_id) for receipt in receipts]

    async def receipt(self, corpus: str, receipt_id: str) -> "Receipt":
        """See ``Access``."""
        return await self._local.corpora.receipt(self._ctx, corpus, receipt_id)

    async def delete(self, corpus: str, source_ids: Sequence[str], dimensions: Mapping[str, str]) -> "Receipt":
        """See ``Access``."""
        from deployments.corpora.messages import DeleteSourcesRequest  # noqa: PLC0415

        request = DeleteSourcesRequest(source_ids=list(source_ids), dimensions=dict(dimensions))
        return await self._local.corpora.delete(self._ctx, corpus, request)

    async def retrieve(self, corpus: str, body: dict[str, Any]) -> "Retrieved":
        """See ``Access``."""
        from pydantic import ValidationError  # noqa: PLC0415

        from corpora.rag.requests import RetrieveRequest  # noqa: PLC0415
        from deployments.http_errors import as_strata_error  # noqa: PLC0415

        try:
            request = RetrieveRequest.model_validate(body)
        except ValidationError as error:
            raise as_strata_error(error) from None
        return await self._local.corpora.retrieve(self._ctx, corpus, request)


@asynccontextmanager
async def access(settings: "Settings", key: str | None, *, in_process: bool) -> AsyncIterator[Access]:
    """Reach the corpora under the identity of a key.

    Args:
        settings: Where the service or the index is.
        key: The API key, or ``None`` for that of this machine.
        in_process: Leave a running service alone.

    Raises:
        ConfigError: There is no key, no service where one is said to be, or something can't be opened.
        Unauthenticated: The key is not valid.
    """
    token = common.find_key(settings, key)
    if not in_process and common.service_is_up(settings):
        from deployments.cli.client import Client  # noqa: PLC0415

        with Client(common.service_url(settings), token) as client:
            yield Remote(client)
        return
    from deployments.corpora.local import local_corpora  # noqa: PLC0415
    from deployments.identity.opening import context_of  # noqa: PLC0415

    ctx = await context_of(settings, token, "in-process")
    async with local_corpora(settings) as local:
        yield Here(local, ctx)


async def find_receipt(corpora: Access, receipt_id: str) -> "Receipt":
    """A receipt of whichever corpus.

    Raises:
        NotFound: None has it.
    """
    for corpus in await corpora.names():
        try:
            return await corpora.receipt(corpus, receipt_id)
        except NotFound:
            continue
    raise NotFound(
        "There is no such receipt.", field="receipt_id", remedy="Receipts of finished work are kept for some days."
    )


def dimensions(
    given: Sequence[str] | None,
    user: str | None = None,
    assistant: str | None = None,
    conversation: str | None = None,
) -> dict[str, str]:
    """The dimensions that the options name.

    Raises:
        InvalidInput: One is no ``name=value``.
    """
    named = {"user_id": user, "assistant_id": assistant, "conversation_id": conversation}
    found = {name: value for name, value in named.items() if value is not None}
    for pair in given or ():
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise InvalidInput("--dim takes name=value.", field="dim", remedy="For instance: --dim session_id=s-1")
        found[name] = value
    return found


def _at(corpus: str) -> str:
    return f"/v1/corpora/{quote(corpus, safe='')}"
