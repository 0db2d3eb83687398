"""Recall and metadata from Elasticsearch.

A recall is two round trips. The first, one ``_msearch``, runs dense and keyword recall of all queries, and counts the
terms by which their coverage is computed. The second gives keyword candidates their cosines, and beside it reads the
accounts' states: when a commit has switched to other revisions since, all is asked again. So every answer shows each
document as a whole, in one revision. Searches return ids; nodes not known from earlier ones (``kept``) are read between
the two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.breaker import Breaker, CircuitOpen
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.filters import Eq
from contracts.ports import NodeMeta, Recalled, RecallQuery
from contracts.records import ModelRef
from index.candidates import check_dimensions
from index.elastic import queries
from index.elastic.answer import Answer, Asked, Plan, Response, SearchKey
from index.elastic.client import TimedClient, reason, unavailable
from index.elastic.config import ElasticConfig
from index.elastic.kept import Kept, Nodes
from index.elastic.ledger import Ledger
from index.elastic.mapping import routing_of
from index.elastic.queries import Hidden
from index.elastic.state import State
from index.elastic.versions import Version, Versions

T = TypeVar("T")
# A read that meets a commit asks again; several commits within one read are all but impossible.
_ATTEMPTS = 5
_MAX_STATES = 10_000
# Seconds by which a request ends before its caller gives up: then the client learns which node hangs, and avoids it.
_MARGIN = 0.005


class _Gone(Exception):
    """The index version asked has been dropped."""


class Search:
    """Reads of the nodes.

    Args:
        client: To the cluster.
        versions: Which index serves.
        ledger: What is hidden.
        config: How is searched.
    """

    def __init__(self, client: AsyncElasticsearch, versions: Versions, ledger: Ledger, config: ElasticConfig) -> None:
        self._clients = TimedClient(client)
        self._versions = versions
        self._ledger = ledger
        self._config = config.recall
        self._keep_seconds = config.write.keep_seconds
        self._timeout = config.connection.request_timeout_ms / 1000
        self._fair = config.breaker.fair_ms / 1000
        self.breaker = Breaker(config.breaker.failures, config.breaker.open_seconds, unavailable)
        self._states: dict[str, State] = {}
        self._nodes = Nodes(config.recall.kept_nodes)

    async def recall(self, asked: Sequence[RecallQuery], deadline: Deadline | None) -> list[Recalled]:
        """See ``SearchIndex.recall``.

        Raises:
            ConfigError: A vector has another dimension than the index and does not say of which model it is.
        """
        plans = [Plan(query) for query in asked]

        async def once(version: Version) -> list[Recalled] | None:
            held = version.meta.model
            if not all(_fits(query, held) for query in asked):
                if not await self._serves(version, deadline):
                    return None
                # An emptied index takes the vectors of any model.
                if await self.ask(self._ledger.empty):
                    return [Recalled((), {}, more=False) for _ in asked]
                check_dimensions(held, asked)
            return await self._recall(version, plans, deadline)

        try:
            # Cut from here, a call tells the breaker nothing: one that was given too little time proves nothing.
            async with asyncio.timeout(deadline.left() if deadline else None):
                answers = await self._settled(once, deadline)
        except TimeoutError:
            raise RecallFailed("There was too little time to search.") from None
        return [Recalled((), {}, more=False) for _ in asked] if answers is None else answers

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``SearchIndex.meta``."""
        return {uri: node.meta for uri, node in (await self.lookup(account_id, uris)).items()}

    async def lookup(self, account_id: str, uris: Collection[str]) -> dict[str, Kept]:
        """The nodes with these URIs that exist."""
        wanted = sorted(set(uris))

        async def once(version: Version) -> dict[str, Kept] | None:
            hidden = self._hidden(account_id)
            condition = queries.visible(Eq("account_id", account_id), hidden)
            asked = Asked(account_id, queries.by_uris(condition, wanted))
            response = _whole((await self._msearch(version, {None: asked}, None))[None])
            nodes = await self._nodes_of(version, {account_id: [hit.id for hit in queries.scored(response)]}, None)
            if nodes is None:
                return None
            rows: dict[str, Kept] = {}
            for node in nodes.values():
                rows[node.meta.uri] = max(node, rows.get(node.meta.uri, node), key=lambda each: each.revision)
            shown = {node.revision for node in rows.values()}
            return rows if await self._unchanged(version, {account_id: hidden}, {account_id: shown}, None) else None

        return (await self._settled(once, None) or {}) if wanted else {}

    async def revision(self, account_id: str) -> str:
        """See ``SearchIndex.revision``."""
        version, states = await asyncio.gather(self.serving(), self.ask(self._ledger.states, [account_id]))
        return f"{version.name if version else ''}/{states.get(account_id, State()).name}"

    async def serving(self) -> Version | None:
        """The version that serves."""
        return await self.ask(self._versions.serving)

    def forget(self, account_id: str) -> None:
        """Read an account's state anew, and the serving version, after a write of this process."""
        self._states.pop(account_id, None)
        self._versions.forget()

    async def ask(self, call: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Ask the cluster for something, unless it is known not to answer.

        Raises:
            RecallFailed: It does not, or not well.
        """
        try:
            with self.breaker.guard():
                return await call(*args, **kwargs)
        except CircuitOpen:
            raise RecallFailed(
                "Elasticsearch has not answered lately; it is asked again in a moment.",
                remedy="Check the cluster: strata doctor.",
            ) from None
        except (ApiError, TransportError) as error:
            raise RecallFailed(f"Elasticsearch: {reason(error)}.", remedy="Check the cluster: strata doctor.") from None

    async def _settled(self, once: Callable[[Version], Awaitable[T | None]], deadline: Deadline | None) -> T | None:
        """Read until no commit and no swap comes between; ``None`` while there is no index."""
        for _ in range(_ATTEMPTS):
            version = await self.ask(self._versions.serving, self._left(deadline))
            if version is None:
                return None
            try:
                result = await once(version)
            except _Gone:
                self._versions.forget()
                continue
            if result is not None:
                return result
        raise RecallFailed("The index changed faster than it could be read.", remedy="Retry.")

    async def _recall(
        self, version: Version, plans: Sequence[Plan], deadline: Deadline | None
    ) -> list[Recalled] | None:
        """One try; ``None`` when a commit came between."""
        hidden = {plan.account_id: self._hidden(plan.account_id) for plan in plans}
        answers = [Answer(plan, version.meta.model, hidden[plan.account_id], self._config) for plan in plans]
        first = await self._msearch(version, _merged(answer.searches() for answer in answers), deadline)
        found: dict[str, set[str]] = {}
        for plan, answer in zip(plans, answers, strict=True):
            found.setdefault(plan.account_id, set()).update(answer.found(first))
        if (nodes := await self._nodes_of(version, found, deadline)) is None:
            return None
        for answer in answers:
            answer.take(first, nodes)
        shown: dict[str, set[int]] = {}
        for plan, answer in zip(plans, answers, strict=True):
            shown.setdefault(plan.account_id, set()).update(answer.revisions)
        second, unchanged = await asyncio.gather(
            self._msearch(version, _merged(answer.exact_searches() for answer in answers), deadline),
            self._unchanged(version, hidden, shown, deadline),
        )
        return [answer.recalled(second) for answer in answers] if unchanged else None

    async def _nodes_of(
        self, version: Version, ids: Mapping[str, Collection[str]], deadline: Deadline | None
    ) -> dict[str, Kept] | None:
        """What lies behind ids, by account; ``None`` when some of them are gone by now, replaced long enough ago."""
        self._nodes.of(version.uuid)
        nodes = self._nodes.get(chain.from_iterable(ids.values()))
        missing = {account_id: sorted(set(wanted) - nodes.keys()) for account_id, wanted in ids.items()}
        asked: dict[SearchKey, Asked] = {
            account_id: Asked(account_id, queries.records(keys)) for account_id, keys in missing.items() if keys
        }
        responses = await self._msearch(version, asked, deadline)
        for account_id, keys in missing.items():
            response = responses.get(account_id, {})
            hits = response.get("hits", {}).get("hits", ())
            if len(hits) < len(keys):
                # A shard that failed may have held them; when none did, they are gone.
                _whole(response)
                return None
            nodes |= self._nodes.keep([hit["_source"] for hit in hits])
        return nodes

    async def _msearch(
        self, version: Version, searches: Mapping[SearchKey, Asked], deadline: Deadline | None
    ) -> dict[SearchKey, Response]:
        """The response, or the error, of each search, in one round trip."""
        if not searches:
            return {}
        left = self._left(deadline)
        lines: list[Mapping[str, Any]] = []
        for account_id, body in searches.values():
            routing = {"routing": routing_of(account_id)} if version.meta.routed else {}
            # Counts are cached by their whole body, so it holds nothing that changes from one search to the next.
            limit = {"timeout": f"{max(1, int(left * 1000))}ms"} if body["size"] else {}
            lines += ({"index": version.name, **routing}, body | limit)
        # The connection is closed when the time is up, and that cancels the search in the cluster.
        answered = await self.ask(self._clients.within(left).msearch, searches=lines)
        responses: Sequence[Response] = answered["responses"]
        if any(queries.fault(response) == "index_not_found_exception" for response in responses):
            raise _Gone
        return dict(zip(searches, responses, strict=True))

    async def _unchanged(
        self,
        version: Version,
        used: Mapping[str, Hidden],
        shown: Mapping[str, Collection[int]],
        deadline: Deadline | None,
    ) -> bool:
        """Whether, by the accounts' states now, nothing was shown that is hidden, nor hidden that is to be shown."""
        states = await self.ask(self._ledger.states, used, self._left(deadline))
        written = any(self._states.get(account_id) != state for account_id, state in states.items())
        if len(self._states) > _MAX_STATES:
            self._states.clear()
        self._states |= states
        # What was written since the last look may be in a version that serves since then, and in no other.
        if written and not await self._serves(version, deadline):
            return False
        for account_id, before in used.items():
            after = self._hidden(account_id)
            if set(before.staged) - set(after.staged) or any(map(after.hides, shown[account_id])):
                return False
        return True

    async def _serves(self, version: Version, deadline: Deadline | None) -> bool:
        """Whether a version serves still, looked up."""
        self._versions.forget()
        serving = await self.ask(self._versions.serving, self._left(deadline))
        return serving is not None and serving.name == version.name

    def _left(self, deadline: Deadline | None) -> float:
        """Seconds after which the next request counts as failed: what is left, or what is fair."""
        left = deadline.left() - _MARGIN if deadline else self._timeout
        return min(self._timeout, max(self._fair, left))

    def _hidden(self, account_id: str) -> Hidden:
        state = self._states.get(account_id)
        return state.hidden(self._keep_seconds) if state else Hidden()


def _whole(response: Response) -> Response:
    """The answer to a look at nodes, of which none may be missing.

    Raises:
        RecallFailed: It is an error, or of a part of the index only.
    """
    if why := queries.fault(response) or queries.incomplete(response):
        raise RecallFailed(f"Elasticsearch could not look up nodes: {why}.", remedy="Retry.")
    return response


def _merged(parts: Iterable[Mapping[SearchKey, Asked]]) -> dict[SearchKey, Asked]:
    return {key: asked for part in parts for key, asked in part.items()}


def _fits(query: RecallQuery, held: ModelRef) -> bool:
    if query.vector is None:
        return True
    return query.model == held if query.model else query.vector.shape == (held.dimensions,)
