"""Block structure of Markdown and plain text (CommonMark and tables, by markdown-it), with exact offsets."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt

BlockKind = Literal["heading", "prose", "item", "code", "table", "other"]

_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "paragraph_open": "prose",
    "blockquote_open": "prose",
    "list_item_open": "item",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
}
_LISTS = {"bullet_list_open", "ordered_list_open"}
# Blocks alone matter here; what is inside a line is left unparsed.
_PARSER = MarkdownIt("commonmark").enable("table").disable("inline")
_NEWLINE = re.compile(r"\r\n?|\n")
_MARKUP = (
    (re.compile(r"!?\[([^\]\[]*)\]\([^()]*\)"), r"\1"),
    (re.compile(r"<(https?://[^>\s]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"^[ \t]*(?:>[ \t]?)+|^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+", re.MULTILINE), ""),
    (re.compile(r"(\*\*|__|~~)(?=\S)(.+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)([*_])(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"(`+)(.+?)\1"), r"\2"),
)


class Block(NamedTuple):
    """A block at the top level of a text; a list gives one block an item.

    Args:
        kind: What it is; ``other`` is HTML and rules.
        start: Offset of its first character in the text.
        end: Offset after its last character that is not blank.
        level: 1..6 for a heading, else 0.
        title: A heading's text without markup.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""


def blocks(text: str) -> list[Block]:
    """The blocks of a text in order, without overlap; together they hold every character that is not blank."""
    found: list[Block] = []
    done = 0
    for block in [*_parsed(text), Block("prose", len(text), len(text))]:
        # What markdown-it consumes without a token (link definitions) is text all the same.
        found += _trimmed(Block("prose", done, block.start), text)
        found += _trimmed(block, text)
        done = max(done, block.end)
    return found


def plain(text: str) -> str:
    """Text without inline Markdown markup, on one line."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def _parsed(text: str) -> Iterator[Block]:
    lines = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
    tokens = _PARSER.parse(text)
    for position, token in enumerate(tokens):
        item = token.level == 1 and token.type == "list_item_open"
        if token.map is None or token.type in _LISTS or not (token.level == 0 or item):
            continue
        start, end = (lines[min(line, len(lines) - 1)] for line in token.map)
        kind = _KINDS.get(token.type, "other")
        if kind == "heading":
            yield Block(kind, start, end, int(token.tag[1]), plain(tokens[position + 1].content))
        else:
            yield Block(kind, start, end)


def _trimmed(block: Block, text: str) -> Iterator[Block]:
    """The block without blank lines around it; its indentation stays. Nothing for a blank one."""
    body = text[block.start : block.end]
    if kept := body.rstrip():
        blank = len(kept) - len(kept.lstrip())
        indent = len(_NEWLINE.split(kept[:blank])[-1])
        yield block._replace(start=block.start + blank - indent, end=block.start + len(kept))
