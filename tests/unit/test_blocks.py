import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.blocks import blocks, plain


def test_headings_lists_code_and_tables_are_told_apart_at_exact_offsets():
    text = "# Title `x`\n\nprose\n\n- one\n- two\n\n```py\n# no heading\n```\n\nSet\n---\n\n|a|b|\n|-|-|\n|1|2|\n"
    found = [(block.kind, text[block.start : block.end]) for block in blocks(text)]
    assert found == [
        ("heading", "# Title `x`"),
        ("prose", "prose"),
        ("item", "- one"),
        ("item", "- two"),
        ("code", "```py\n# no heading\n```"),
        ("heading", "Set\n---"),
        ("table", "|a|b|\n|-|-|\n|1|2|"),
    ]
    assert [(block.level, block.title) for block in blocks(text) if block.kind == "heading"] == [
        (1, "Title x"),
        (2, "Set"),
    ]


def test_a_link_definition_which_markdown_swallows_is_kept_as_prose():
    text = "one\n\n[ref]: http://example.org\n\ntwo"
    assert [text[block.start : block.end] for block in blocks(text)] == ["one", "[ref]: http://example.org", "two"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_offsets_are_right_for_every_line_ending(newline: str):
    text = newline.join(["# 标题", "", "正文。", "", "    code"])
    assert [text[block.start : block.end] for block in blocks(text)] == ["# 标题", "正文。", "    code"]


@given(st.text(alphabet=st.sampled_from(list("# -*`>|[]:\n\r\t 1.ab你好。")), max_size=80))
def test_blocks_are_in_order_without_overlap_and_hold_all_that_is_not_blank(text: str):
    held = [False] * len(text)
    done = 0
    for block in blocks(text):
        assert done <= block.start < block.end
        done = block.end
        held[block.start : block.end] = [True] * (block.end - block.start)
    assert all(held[place] or char.isspace() for place, char in enumerate(text))


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("see [the docs](http://x.y/z) and ![a picture](p.png)", "see the docs and a picture"),
        ("**bold**, _italic_, `code` and snake_case_name", "bold, italic, code and snake_case_name"),
        ("> quoted\n> twice", "quoted twice"),
        ("- 第一项", "第一项"),
        ("a <b>b</b> <http://x.y> 2 < 3", "a b http://x.y 2 < 3"),
    ],
)
def test_inline_markup_goes_and_the_text_stays(marked: str, expected: str):
    assert plain(marked) == expected
