"""The two public walks: what leaves them (C1, C22, C23)."""

from typing import Any

import msgspec
import pytest

from contracts.context import RequestContext
from contracts.errors import ReadForbidden
from contracts.hits import RetrievedBlock
from contracts.requests import ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import NextActions
from contracts.trace import Trace
from deployments.http_errors import error_response
from deployments.service import Service
from deployments.settings import Settings
from stages.assembler import block
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from tests.support.fake_index import FakeIndex, record
from tests.support.hits import node_hit

CTX = RequestContext("acme", "user", "user:ann", request_id="r-1")


class FakeChain:
    """A chain that finds one record with a secret in its abstract."""

    async def search(self, ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        hit = node_hit("strata://shared/a", abstract="password = 'hunter2!'")
        return SearchMemoryResponse("r-1", (), (hit.seed(),), (block(hit),), NextActions(), Trace())


def service(index: FakeIndex, redaction: RedactionConfig) -> Service:
    reader = Reader(index, index, index, ReaderConfig(), Redactor(redaction))
    return Service(FakeChain(), reader, Settings(redaction=redaction))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("levels", "abstract"),
    [(("L2",), "password = 'hunter2!'"), (("L0", "L2"), "password = '[redacted]'")],
)
async def test_abstracts_that_a_search_shows_are_redacted_where_the_settings_say_so(levels: Any, abstract: str) -> None:
    """C23."""
    answer = await service(FakeIndex([]), RedactionConfig(levels=levels)).search(CTX, SearchMemoryRequest(query="x"))
    assert [hit.abstract for hit in answer.hits] == [hit.abstract for hit in answer.seed_hits] == [abstract]


async def test_a_block_without_an_abstract_stays_without_one() -> None:
    hit = msgspec.structs.replace(block(node_hit("strata://shared/a")), abstract=None)

    class FakeEmptyChain(FakeChain):
        async def search(self, ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
            return SearchMemoryResponse("r-1", (), (), (hit,), NextActions(), Trace())

    walks = Service(FakeEmptyChain(), Reader, Settings(redaction=RedactionConfig(levels=("L0", "L2"))))  # type: ignore[arg-type]
    found: tuple[RetrievedBlock, ...] = (await walks.search(CTX, SearchMemoryRequest(query="x"))).hits
    assert found == (hit,)


@pytest.mark.parametrize("level", ["L1", "L2"])
async def test_what_may_not_be_read_is_answered_alike_in_status_headers_and_body_whether_it_exists_or_not(
    level: Any,
) -> None:
    """C22."""
    index = FakeIndex(
        [
            record("strata://user:bob/there"),
            record("strata://shared/foreign", account_id="other"),
            record("strata://shared/archived", status="archived"),
            record("strata://shared/expired", expires_at=1),
        ]
    )
    answers = set()
    for uri in (*index.records, "strata://user:bob/absent", "strata://shared/absent", "strata://nobody"):
        with pytest.raises(ReadForbidden) as refusal:
            await service(index, RedactionConfig()).read(CTX, ReadMemoryRequest(uri=uri, level=level))
        response = error_response(refusal.value, CTX.request_id)
        answers.add((response.status_code, tuple(response.headers.items()), response.body))
    ((status, _, body),) = answers
    assert status == 403
    assert b"RET-4032" in body
    # Of what lies outside the scope nothing is looked up; within it, all that is hidden costs the same.
    assert {tuple(uris) for uris in index.metas} == {(uri,) for uri in (*index.records, SHARED) if "shared" in uri}
    assert all(not uris for uris, _ in index.reads)


SHARED = "strata://shared/absent"
