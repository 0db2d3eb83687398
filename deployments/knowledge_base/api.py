"""The route of the knowledge base, ``POST /v1/kb/search``: only where ``knowledge_base.http`` switches it on (K7)."""

from fastapi import FastAPI
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from contracts.context import RequestContext
from contracts.errors import TargetForbidden
from contracts.requests import Strict
from corpora.knowledge_base.config import MAX_TOP_K
from corpora.knowledge_base.service import Searcher
from corpora.knowledge_base.types import SPACE, SearchOutcome
from deployments.api import Api
from deployments.http_errors import json_response
from deployments.openapi import Section, answer, body, errors, ref

PATH = "/v1/kb/search"
NAME = "kb_search"
_ERRORS = {503: "A stage or the database is down: RET-5001, RET-5031. Retry."}


class KbSearchRequest(Strict):
    """``POST /v1/kb/search``."""

    query_text: str = Field(description="What to look for.")
    entity_types: list[str] = Field([], max_length=64, description="Only entities of one of these.")
    occasion: str | None = Field(None, description="Only entities for this occasion.")
    body_shape: str | None = Field(None, description="No entity that this body shape should avoid.")
    filters: dict[str, str | list[str]] = Field({}, description="Values for further hard filters, by name.")
    rule_boost: dict[str, float] = Field({}, max_length=1000, description="Lifts chunks, by id; 0 to 1.")
    top_k: int | None = Field(None, description=f"Results wanted, 1..{MAX_TOP_K}.")
    timeout_ms: int | None = Field(None, ge=1, description="At most the server's own.")


def section() -> Section:
    """The one route."""
    route = {
        "operationId": NAME,
        "summary": "Search the knowledge base; nothing that fails a hard filter is ever among the results.",
        "requestBody": body(ref(KbSearchRequest)),
        "responses": {"200": answer("The results, best first; `degraded` says that some are missing.", SearchOutcome)}
        | errors(_ERRORS),
    }
    return Section({PATH: {"post": route}}, (KbSearchRequest,), (SearchOutcome,))


class KnowledgeBaseRoute:
    """The route; an ``Extension`` of the API.

    Args:
        searcher: Answers.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    @property
    def section(self) -> Section:
        """Its part of the OpenAPI document."""
        return section()

    def add_to(self, app: FastAPI, api: Api) -> None:
        """Add it to an app."""

        async def read(request: Request) -> KbSearchRequest:
            return KbSearchRequest.model_validate_json(await api.body(request))

        app.add_route(PATH, api.endpoint(NAME, read, self._search), methods=["POST"])

    async def _search(self, ctx: RequestContext, asked: KbSearchRequest) -> Response:
        if not ctx.may_see(SPACE):
            raise TargetForbidden(
                "You may not search the knowledge base.", remedy=f"Ask for a key that grants the space {SPACE}."
            )
        found = await self._searcher.search(
            asked.query_text,
            ctx,
            asked.entity_types,
            asked.occasion,
            asked.body_shape,
            asked.rule_boost,
            asked.top_k,
            filters=asked.filters,
            timeout_ms=asked.timeout_ms,
        )
        return json_response(found)
