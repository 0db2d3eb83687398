"""The reader telling what the source of truth says now, for corpora (R9)."""

from typing import Any

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.stages import ReadRequest, ReadResult
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from stages.shapes import FITS
from tests.support.fake_index import FakeIndex, record

CTX = RequestContext("acme", "user", "user:ann")
A, B, BOBS = "strata://shared/a", "strata://shared/b", "strata://user:bob/x"


async def read(index: FakeIndex, *uris: str, **fields: Any) -> ReadResult:
    reader = Reader(index, index, index, ReaderConfig(), Redactor(RedactionConfig()))
    return await reader(CTX, Deadline.after(5), ReadRequest(uris, "L2", **fields))


async def test_nodes_describe_the_blocks_in_their_order_and_nothing_that_may_not_be_read() -> None:
    index = FakeIndex([record(A, "of a", attrs={"lang": ("zh",)}), record(B, "of b"), record(BOBS)])
    result = await read(index, B, BOBS, A, describe=True)
    assert [node.uri for node in result.nodes] == [block.uri for block in result.blocks] == [B, A]
    assert result.nodes[1].attrs == {"lang": ("zh",)}
    # An abstract goes out in its block, where what is secret is masked.
    assert [node.abstract for node in result.nodes] == ["", ""]
    assert (result.revision, result.forbidden) == ("1", (BOBS,))


async def test_a_read_of_nothing_tells_the_revision() -> None:
    index = FakeIndex([record(A)])
    index.shown = "7"
    assert await read(index, describe=True) == ReadResult((), revision="7")


async def test_nothing_is_described_that_was_not_asked_for() -> None:
    result = await read(FakeIndex([record(A)]), A)
    assert (result.nodes, result.revision) == ((), "")


async def test_what_is_described_travels_between_replicas() -> None:
    nodes = [record(A, "of a", attrs={"lang": ("zh", "en")}, tags=("x",), expires_at=2**52)]
    result = await read(FakeIndex(nodes), A, describe=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=ReadResult) == result


async def test_an_answer_whose_nodes_are_not_those_of_its_blocks_does_not_fit() -> None:
    result = await read(FakeIndex([record(A), record(B)]), A, B, describe=True)
    request = ReadRequest((A, B), "L2", describe=True)
    assert FITS["reader"](request, result)
    result.nodes = result.nodes[::-1]
    assert not FITS["reader"](request, result)
