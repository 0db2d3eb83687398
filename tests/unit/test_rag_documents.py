import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidBody, InvalidUri
from contracts.records import Node
from contracts.uri import is_under, parse, space_of
from corpora.rag.documents import MAX_SOURCE_ID, SourceChunker, check, source_uri
from corpora.rag.types import Passage, SourceDocument
from index.chunker import ChunkOptions, count_tokens

SMALL = ChunkOptions(size=24, overlap=6)
PIECES = st.sampled_from(
    [
        "# A heading\n\n",
        "## 二级标题\n\n",
        "A sentence of some words. ",
        "他说：“检索从摘要开始。”然后扩展！",
        "没有结尾的一段话，用逗号分开，一直写下去",
        "\n\n",
        "- an item\n",
        "```py\nfor x in range(3):\n    print(x)\n```\n\n",
        "|a|b|\n|-|-|\n|1|2|\n\n",
        "<br>",
        "***",
        " \t\n",
        "一" * 30,
    ]
)
TEXTS = (st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=200)).filter(
    lambda text: text.strip() and not any("\ud800" <= char <= "\udfff" for char in text)
)
# What ids are made of in the wild, and what has broken paths, URIs and hashes somewhere before.
IDS = (
    st.lists(
        st.sampled_from(
            [*"aA1-./~%\\ #?&:@", "\u0301", "é", "ﬁ", "～", "文", "\u200b", "\n", "/chunk-1", "/part-2", "🙂"]
        ),
        min_size=1,
        max_size=8,
    )
    .map("".join)
    .filter(str.strip)
)


def source(text: str = "A text.", **changes: object) -> SourceDocument:
    plain = SourceDocument("doc", "user:alice", "memory", "memory", text)
    return msgspec.structs.replace(plain, **changes)


def place(node: Node) -> tuple[int, int] | None:
    if "start" not in node.attrs:
        return None
    (start,), (end,) = node.attrs["start"], node.attrs["end"]
    return int(start), int(end)


@given(TEXTS)
def test_every_piece_of_a_text_is_found_in_it_by_its_offsets_and_nothing_is_lost(text: str):
    """R2: Chinese, English and Markdown alike."""
    nodes = SourceChunker(SMALL).chunk("memory", source(text))
    held = [False] * len(text)
    for node in nodes:
        if where := place(node):
            assert text[slice(*where)] == node.content
            held[slice(*where)] = [True] * (where[1] - where[0])
    assert all(held[at] or char.isspace() for at, char in enumerate(text))


@given(TEXTS)
def test_a_source_is_a_parent_over_chunks_or_one_node_and_only_parents_have_an_overview(text: str):
    first, *below = SourceChunker(SMALL).chunk("memory", source(text))
    assert first.has_children == bool(below) == (count_tokens(text) > SMALL.size) == bool(first.overview)
    assert first.parent_uri == ""
    for node in below:
        assert (node.parent_uri, node.kind, node.overview, node.has_children) == (first.uri, "chunk", "", False)
        assert count_tokens(node.content) <= SMALL.size
    assert all(node.content and node.abstract for node in (first, *below))


@given(TEXTS, st.integers(0, 2**53))
def test_every_node_carries_what_its_source_is_filtered_and_expires_by(text: str, expires_at: int):
    """R4: no chunk of an expired or a private source can be met without its parent's conditions."""
    given_ = source(
        text, title="T", attrs={"user_id": ("alice",), "source": ("forged",)}, tags=("x",), expires_at=expires_at
    )
    for node in SourceChunker(SMALL).chunk("memory", given_):
        assert (node.expires_at, node.tags, node.context_type) == (expires_at, ("x",), "memory")
        assert (node.attrs["user_id"], node.attrs["source"], node.attrs["title"]) == (("alice",), ("doc",), ("T",))


def test_passages_are_kept_whole_below_a_node_with_the_text_of_the_whole():
    said = tuple(Passage(f"Turn {n}. " * 40, name="Ann", attrs={"speaker": ("Ann",)}, kind="turn") for n in range(3))
    first, *below = SourceChunker(SMALL).chunk("memory", source("The whole.", passages=said))
    assert (first.content, first.kind, first.has_children, place(first)) == ("The whole.", "memory", True, None)
    assert [node.content for node in below] == [passage.text for passage in said]
    assert {(node.kind, node.name, node.parent_uri, node.overview) for node in below} == {
        ("turn", "Ann", first.uri, "")
    }
    assert all(node.attrs["speaker"] == ("Ann",) and node.attrs["source"] == ("doc",) for node in below)


def test_passages_without_a_text_of_the_whole_are_joined_for_it_and_blank_ones_left_out():
    first, *below = SourceChunker().chunk("m", source("", passages=(Passage("One."), Passage(" "), Passage("Two."))))
    assert first.content == "One.\nTwo."
    assert [node.content for node in below] == ["One.", "Two."]


@given(st.lists(IDS, min_size=2, max_size=6, unique=True))
def test_all_uris_are_canonical_lie_below_their_corpus_and_never_meet(ids: list[str]):
    """Two sources never share a node, whatever their ids, also not one with another's chunks."""
    chunker, text = SourceChunker(SMALL), "A sentence of some words. " * 12
    seen: set[str] = set()
    for source_id in ids:
        own = {node.uri for node in chunker.chunk("memory", source(text, source_id=source_id))}
        assert not seen & own
        seen |= own
    base = "strata://user:alice/memory"
    assert all(parse(uri) == uri and is_under(uri, base) and space_of(uri) == "user:alice" for uri in seen)


@pytest.mark.parametrize("source_id", ["note", "docs/a/b.md", "文档/检索", "https:host", "a b"])
def test_a_plain_id_is_its_own_path(source_id: str):
    assert source_uri("shared", "web", source_id) == f"strata://shared/web/{source_id}"


@pytest.mark.parametrize("source_id", ["../up", "a//b", "a/", "/a", "a%2Fb", "a\\b", "ﬁle", " a", "x~y", "a/chunk-1"])
def test_an_id_that_is_no_plain_path_is_named_with_a_hash(source_id: str):
    uri = source_uri("shared", "web", source_id)
    assert parse(uri) == uri
    assert "~" in uri.removeprefix("strata://shared/web/")
    assert uri.count("/") == 4


def test_the_longest_id_still_has_a_uri_for_its_chunks():
    document = source("Some words. " * 400, source_id="长" * MAX_SOURCE_ID)
    assert all(parse(node.uri) for node in SourceChunker(SMALL).chunk("memory", document))


@given(TEXTS, st.data())
def test_the_fingerprint_tells_every_change_that_shapes_the_nodes(text: str, data: st.DataObject):
    changed = data.draw(
        st.sampled_from(
            [
                source(text + " more"),
                source(text, title="Another"),
                source(text, attrs={"a": ("1",)}),
                source(text, expires_at=5),
                source(text, updated_at=5),
                source(text, tags=("x",)),
            ]
        )
    )
    chunker = SourceChunker(SMALL)
    first = chunker.document("memory", source(text))
    assert chunker.document("memory", source(text)) == first
    assert chunker.document("memory", changed).fingerprint != first.fingerprint


def test_other_chunk_sizes_are_another_fingerprint_only_where_they_cut_otherwise():
    long, short = source("Some words here. " * 20), source("Short.")
    small, large = SourceChunker(SMALL), SourceChunker(ChunkOptions(size=48, overlap=6))
    assert small.document("m", long).fingerprint != large.document("m", long).fingerprint
    assert small.document("m", short).fingerprint == large.document("m", short).fingerprint


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source_id": " "}, "source_id"),
        ({"source_id": "x" * (MAX_SOURCE_ID + 1)}, "source_id"),
        ({"source_id": "a\0b"}, "source_id"),
        ({"source_id": "a\ud800"}, "source_id"),
        ({"text": " \n"}, "text"),
        ({"text": "", "passages": (Passage(" "),)}, "text"),
        ({"text": "a\udfff"}, "text"),
        ({"expires_at": -1}, "expires_at"),
        ({"updated_at": 2**60}, "updated_at"),
    ],
)
def test_what_can_not_be_stored_is_refused_by_field(changes: dict[str, object], field: str):
    with pytest.raises(InvalidBody) as refused:
        check(source(**changes))
    assert refused.value.field == field


def test_a_space_that_is_not_valid_is_refused():
    with pytest.raises(InvalidUri):
        check(source(space="User Alice"))
