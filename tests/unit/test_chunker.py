from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from index.chunker import ChunkOptions, chunk, count_tokens, sentences

PIECES = st.sampled_from(
    [
        "# A heading\n\n",
        "## 二级标题\n\n",
        "A sentence of some words. ",
        "他说：“检索从摘要开始。”然后扩展！",
        "没有结尾的一段话，用逗号分开，一直写下去",
        "\n\n",
        "\n",
        "- an item\n",
        "```py\nfor x in range(3):\n    print(x)\n\n# a comment\n```\n\n",
        "|a|b|\n|-|-|\n|1|2|\n\n",
        "averyveryverylongwordwithoutanyspace" * 4,
        "一" * 60,
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=300)
OPTIONS = st.integers(16, 80).flatmap(
    lambda size: st.builds(ChunkOptions, size=st.just(size), overlap=st.integers(0, size // 2))
)


@given(TEXTS, OPTIONS)
def test_every_chunk_is_a_slice_of_its_source_and_nothing_is_lost(text: str, options: ChunkOptions):
    """R2: offsets are exact and the union of the chunks holds all that is not blank."""
    held = [False] * len(text)
    for part in chunk(text, options):
        assert text[part.start : part.end] == part.text
        assert part.text.strip()
        held[part.start : part.end] = [True] * len(part.text)
    assert all(held[place] or char.isspace() for place, char in enumerate(text))


@given(TEXTS, OPTIONS)
def test_chunks_keep_to_size_and_overlap_and_move_on(text: str, options: ChunkOptions):
    """R2: at most ``size`` tokens each, of which at most ``overlap`` repeat the chunk before."""
    parts = chunk(text, options)
    assert all(count_tokens(part.text) <= options.size for part in parts)
    for before, after in pairwise(parts):
        assert before.start < after.start
        assert before.end < after.end
        assert count_tokens(text[after.start : before.end]) <= options.overlap


@given(TEXTS)
def test_an_injected_counter_decides_the_size(text: str):
    parts = chunk(text, ChunkOptions(size=40, overlap=8), count=len)
    words = "".join(text.split())
    assert sum(len(part.text) for part in parts) >= len(words)
    assert all(len("".join(part.text.split())) <= 40 for part in parts)


def test_a_text_that_fits_is_one_chunk_and_a_blank_one_is_none():
    assert [part.text for part in chunk("  Short text.\n")] == ["Short text."]
    assert chunk(" \n\t\n") == []


def test_a_chunk_ends_before_a_heading_rather_than_in_the_text_after_it():
    text = f"{'One two three four. ' * 5}\n\n## Next\n\n{'Five six seven. ' * 5}"
    first, second = chunk(text, ChunkOptions(size=40, overlap=0))
    assert first.text.endswith("four.")
    assert second.text.startswith("## Next")


def test_a_code_block_stays_whole_where_it_fits():
    code = "```py\nfor x in range(3):\n\n    print(x)\n```"
    text = f"{'Some words of prose here. ' * 6}\n\n{code}\n\n{'More words of prose. ' * 6}"
    assert any(code in part.text for part in chunk(text, ChunkOptions(size=48, overlap=8)))


def test_a_code_block_that_is_too_long_is_cut_between_lines():
    code = "```\n" + "\n".join(f"line_{number} = {number}" for number in range(40)) + "\n```"
    for part in chunk(code, ChunkOptions(size=50, overlap=10)):
        assert {line.partition("_")[0] for line in part.text.splitlines()} <= {"```", "line"}
        assert part.text.splitlines()[-1] in code.splitlines()


def test_overlap_repeats_whole_sentences():
    text = " ".join(f"Sentence number {number}." for number in range(20))
    first, second, *_ = chunk(text, ChunkOptions(size=40, overlap=10))
    shared = text[second.start : first.end]
    assert shared.startswith("Sentence")
    assert shared.endswith(".")


def test_chinese_is_cut_at_its_own_sentence_ends():
    text = "检索从摘要开始。" * 12
    parts = chunk(text, ChunkOptions(size=40, overlap=8))
    assert len(parts) > 2
    assert all(part.text.endswith("。") and part.text.startswith("检") for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith went. He left!", ["Mr. Smith went.", "He left!"]),
        ("See e.g. this one. Version 1.2.3 works.", ["See e.g. this one.", "Version 1.2.3 works."]),
        ("他说：“你好。”然后走了。好吗？", ["他说：“你好。”", "然后走了。", "好吗？"]),
        ("好吗?好!走吧", ["好吗?", "好!", "走吧"]),
        ("- one\n- two", ["- one", "- two"]),
        ("one\n\ntwo", ["one", "two"]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]):
    assert [text[start:end] for start, end in sentences(text)] == expected


def test_tokens_are_counted_by_characters_in_chinese_and_by_word_pieces_in_english():
    assert count_tokens("分层检索") == 4
    assert count_tokens("run a command") == 4
    assert count_tokens("2026 年") == 3
    assert count_tokens(" \n") == 0


def test_an_overlap_of_more_than_half_a_chunk_is_refused():
    with pytest.raises(ValidationError, match="overlap must be at most half of size"):
        ChunkOptions(size=100, overlap=51)
