"""Reading by URI: levels, access, relations, redaction (C7, C22, C23)."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.hits import Relation
from contracts.stages import ReadRequest, ReadResult
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from tests.support.fake_index import FakeIndex, record

CTX = RequestContext("acme", "user", "user:ann")
A, B = "strata://shared/a", "strata://shared/b"


async def read(index: FakeIndex, *uris: str, **fields: object) -> ReadResult:
    reader = Reader(index, index, index, ReaderConfig(max_chars=100, max_edges=5), Redactor(RedactionConfig()))
    return await reader(CTX, Deadline.after(1), ReadRequest(uris, **fields))  # type: ignore[arg-type]


async def test_l1_gives_the_overview_and_l2_the_content() -> None:
    """C7, section 10 unit 6."""
    index = FakeIndex([record(A, "abstract")])
    (l1,) = (await read(index, A)).blocks
    assert (l1.level_hit, l1.abstract, l1.overview, l1.content_excerpt) == ("L1", "abstract", f"overview of {A}", None)
    assert l1.read_recommendation == "read_l2"
    (l2,) = (await read(index, A, level="L2")).blocks
    assert (l2.level_hit, l2.overview, l2.content_excerpt) == ("L2", None, f"content of {A}")


async def test_a_node_without_the_level_gives_a_block_without_text() -> None:
    (block,) = (await read(FakeIndex([record(A, overview="", has_overview=False)]), A)).blocks
    assert block.overview is None


async def test_forbidden_absent_hidden_and_malformed_uris_are_told_apart_by_nothing() -> None:
    """C22: the same answer, and for what lies outside the scope no look-up at all."""
    index = FakeIndex(
        [
            record("strata://user:bob/x"),
            record("strata://shared/other", account_id="other"),
            record("strata://shared/old", status="archived"),
            record("strata://shared/late", expires_at=1),
        ]
    )
    for uri in [
        "strata://user:bob/x",
        "strata://user:bob/nothing",
        "strata://shared/other",
        "strata://shared/old",
        "strata://shared/late",
        "strata://shared/nothing",
        "strata://shared/../user:bob/x",
        "not a uri",
    ]:
        result = await read(index, uri)
        assert (result.blocks, result.forbidden) == ((), (uri,))
    assert not any("bob" in uri for uris in index.metas for uri in uris)
    assert all(not uris for uris, _ in index.reads)


async def test_a_batch_keeps_the_order_and_names_what_may_not_be_read() -> None:
    index = FakeIndex([record(A), record(B)])
    result = await read(index, B, "strata://user:bob/x", A)
    assert [block.uri for block in result.blocks] == [B, A]
    assert result.forbidden == ("strata://user:bob/x",)


async def test_relations_go_one_hop_and_never_to_a_forbidden_node() -> None:
    edges = {A: [Relation(B, "see", 0.9), Relation("strata://user:bob/x", "see", 0.8), Relation(A, "self", 0.7)]}
    index = FakeIndex([record(A), record(B), record("strata://user:bob/x")], edges)
    (block,) = (await read(index, A, expand_relations=True, max_relations=2)).blocks
    assert block.relations == (Relation(B, "see", 0.9), Relation(A, "self", 0.7))
    assert (await read(index, A, max_relations=2)).blocks[0].relations == ()


async def test_relations_that_are_hidden_do_not_count_so_their_number_betrays_nothing() -> None:
    """C21: as many come as are asked for, whether heavier ones are hidden or not there."""
    hidden = [Relation(f"strata://user:bob/{n}", "see", 0.9) for n in range(3)]
    gone = Relation("strata://shared/gone", "see", 0.8)
    for heavier in ([], hidden, [gone], [*hidden, gone]):
        index = FakeIndex(
            [record(A), record(B), record("strata://user:bob/0")], {A: [*heavier, Relation(B, "see", 0.1)]}
        )
        (block,) = (await read(index, A, expand_relations=True, max_relations=1)).blocks
        assert block.relations == (Relation(B, "see", 0.1),)
        assert not any("bob" in uri for uris in index.metas for uri in uris)


async def test_the_relations_looked_at_are_bounded() -> None:
    edges = {A: [Relation(f"strata://shared/{n}", "see") for n in range(50)]}
    index = FakeIndex([record(A), *(record(f"strata://shared/{n}") for n in range(50))], edges)
    (block,) = (await read(index, A, expand_relations=True, max_relations=100)).blocks
    assert len(block.relations) == 5
    assert [len(uris) for uris in index.metas] == [1, 5]


async def test_l1_and_abstracts_are_redacted_where_the_settings_say_so() -> None:
    """C23."""
    index = FakeIndex([record(A, "password = 'hunter2!'", overview="password = 'hunter2!'")])
    for levels, shown in ((("L2",), "password = 'hunter2!'"), (("L0", "L1", "L2"), "password = '[redacted]'")):
        reader = Reader(index, index, index, ReaderConfig(), Redactor(RedactionConfig(levels=levels)))
        (block,) = (await reader(CTX, Deadline.after(1), ReadRequest((A,)))).blocks
        assert (block.abstract, block.overview) == (shown, shown)


async def test_l2_is_redacted_and_cut_at_the_cap() -> None:
    """C23."""
    index = FakeIndex([record(A, content='api_key = "q8Zk2mPw71Lx"\n' + "x" * 200)])
    (block,) = (await read(index, A, level="L2")).blocks
    assert block.content_excerpt is not None
    assert "q8Zk2mPw71Lx" not in block.content_excerpt
    assert block.content_excerpt.endswith("…")
