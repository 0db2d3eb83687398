"""Pages that a web search fetched, each kept to the session or query that fetched it (R5).

They lie in a space of their own beside the caller's, which plain searches never see.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import SHARED_SPACE, RequestContext
from contracts.errors import InvalidBody, InvalidUri
from contracts.filters import Eq, all_of
from contracts.uri import parse_space
from corpora.canonical_url import host_of
from corpora.rag.bodies import digest, keywords, read, weighed
from corpora.rag.types import CorpusHit, Raw, Scope, SourceDocument
from corpora.web_bodies import DIMENSIONS, WebIngestBody, WebPage, WebRetrieveBody

_DOMAIN = r"^[a-z0-9-]+(\.[a-z0-9-]+)*$"
# Of the address in an id, so that the whole is no longer than ids may be.
_ID_URL = 448
_DAY = 24 * 3600 * 1000


class WebConfig(BaseModel):
    """How much the source and the age of a page weigh beside its relevance."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trust: dict[Annotated[str, Field(pattern=_DOMAIN)], Annotated[float, Field(ge=0, le=1)]] = Field(
        {"gov": 1.0, "gov.cn": 1.0, "edu": 0.9, "edu.cn": 0.9, "ac.uk": 0.9, "wikipedia.org": 0.9},
        description="Trust by domain, for all hosts below it; the longest that fits counts.",
    )
    default_trust: float = Field(0.5, ge=0, le=1, description="Of all other domains. Higher: the table says less.")
    trust_weight: float = Field(0.1, ge=0, le=1, description="How much of its score a page of no trust loses.")
    freshness_weight: float = Field(0.05, ge=0, le=1, description="How much of its score a very old page loses.")
    half_life_days: float = Field(
        180, gt=0, description="Age at which half of the freshness is left. Shorter: news wins over what lasts."
    )
    default_freshness: float = Field(0.5, ge=0, le=1, description="Of pages that do not say when they were published.")
    per_page: int = Field(2, ge=1, description="Chunks of one page in an answer. More: deeper, from fewer pages.")


class WebCorpus:
    """Pages from the web, as ``corpora.rag.ports.CorpusAdapter`` says.

    Args:
        config: Trust, freshness and folding.
        clock: Seconds since the epoch.
    """

    name = "web"

    def __init__(self, config: WebConfig | None = None, clock: Callable[[], float] = time.time) -> None:
        self._config = config or WebConfig()
        self._clock = clock

    def build_ingest_documents(self, ctx: RequestContext, raw: Raw) -> list[SourceDocument]:
        """One document a page; a page again in the same session and query replaces it."""
        body = read(WebIngestBody, raw, one_of=DIMENSIONS)
        space = _space(ctx)
        documents = {}
        for number, page in enumerate(body.pages):
            text = page.content if page.content.strip() else page.snippet
            if not text.strip():
                raise InvalidBody("The page holds no text.", field=f"pages.{number}.content", remedy="Leave it out.")
            document = self._document(page, text, space, body)
            documents[document.source_id] = document
        return list(documents.values())

    def build_retrieve_filter(self, ctx: RequestContext, raw: Raw) -> Scope:
        """The web space beside the caller's own; every dimension given as a hard condition."""
        body = read(WebRetrieveBody, raw, one_of=DIMENSIONS)
        must = all_of(*(Eq(f"attrs.{name}", value) for name in DIMENSIONS if (value := getattr(body, name))))
        return Scope(_space(ctx), must, "resource")

    def arrange(self, raw: Raw, hits: Sequence[CorpusHit]) -> list[CorpusHit]:
        """Weigh by trust and freshness, then fold: the newest of each address, the most trusted of each content."""
        found = _folded(hits, by="url", best=lambda hit: (hit.updated_at, hit.score))
        found = _folded(found, by="content_hash", best=lambda hit: (self._trust(hit), hit.score))
        ranked = sorted(map(self._weighed, found), key=lambda hit: (-hit.score, hit.uri))
        return [hit for number, hit in _numbered(ranked) if number < self._config.per_page]

    def _document(self, page: WebPage, text: str, space: str, body: WebIngestBody) -> SourceDocument:
        fetched = page.fetched_at or int(self._clock() * 1000)
        return SourceDocument(
            source_id=f"{page.url[:_ID_URL]}#{digest(page.url, body.session_id or '', body.query_id or '')}",
            space=space,
            kind="page",
            context_type="resource",
            text=text,
            title=page.title,
            category="page",
            attrs=keywords(
                session_id=body.session_id,
                query_id=body.query_id,
                url=page.url,
                domain=(page.domain or host_of(page.url)).lower(),
                published_at=page.published_at,
                fetched_at=fetched,
                language=page.language,
                source_rank=page.source_rank,
                content_hash=blake2b(" ".join(text.split()).encode(), digest_size=16).hexdigest(),
            ),
            created_at=max(0, page.published_at or fetched),
            updated_at=max(0, fetched),
            # 0 would mean never.
            expires_at=0 if page.ttl_at is None else max(1, page.ttl_at),
        )

    def _weighed(self, hit: CorpusHit) -> CorpusHit:
        config = self._config
        shares = (config.trust_weight, self._trust(hit)), (config.freshness_weight, self._freshness(hit))
        return msgspec.structs.replace(hit, score=weighed(hit.score, *shares))

    def _trust(self, hit: CorpusHit) -> float:
        """By the host of the address: the domain is what the caller says it is."""
        host = host_of(_attr(hit, "url"))
        while host and host not in self._config.trust:
            host = host.partition(".")[2]
        return self._config.trust.get(host, self._config.default_trust)

    def _freshness(self, hit: CorpusHit) -> float:
        published = _attr(hit, "published_at")
        if not published:
            return self._config.default_freshness
        days = max(0.0, self._clock() * 1000 - int(published)) / _DAY
        return float(0.5 ** (days / self._config.half_life_days))


def _space(ctx: RequestContext) -> str:
    """The web space beside the caller's own; no two names share one, as no space begins with ``-``."""
    name = ctx.user_space or ctx.agent_space or SHARED_SPACE
    try:
        return parse_space(f"web.{parse_space(name)}")
    except InvalidUri:
        return f"web.-{digest(name)}"


def _folded(hits: Sequence[CorpusHit], by: str, best: Callable[[CorpusHit], tuple[float, float]]) -> list[CorpusHit]:
    """The hits without those of sources that share an attribute with a better one."""
    leaders: dict[str, CorpusHit] = {}
    for hit in hits:
        shared = _shared(hit, by)
        leader = leaders.get(shared)
        if leader is None or (*best(hit), hit.uri) > (*best(leader), leader.uri):
            leaders[shared] = hit
    return [hit for hit in hits if leaders[_shared(hit, by)].source_id == hit.source_id]


def _shared(hit: CorpusHit, by: str) -> str:
    return _attr(hit, by) or hit.source_id


def _numbered(hits: Sequence[CorpusHit]) -> Iterator[tuple[int, CorpusHit]]:
    """Each hit with how many of its source come before it."""
    before: Counter[str] = Counter()
    for hit in hits:
        yield before[hit.source_id], hit
        before[hit.source_id] += 1


def _attr(hit: CorpusHit, name: str) -> str:
    return next(iter(hit.attrs.get(name, ())), "")
