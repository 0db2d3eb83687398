import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.abstracts import AbstractOptions, Entry, abstract, clip, first_sentence, outline, overview
from index.chunker import count_tokens

ENGLISH = """
# Layered retrieval

Layered retrieval searches abstracts first. It was a sunny day. Overviews and contents are read by address later.

```py
print("code is no abstract")
```

## Why

Reading everything costs time. Abstracts are short, so searching abstracts costs little time.
"""
CHINESE = "分层检索先检索摘要。昨天下雨了。摘要很短，所以检索摘要很快。全文只在需要时才读取。" * 3


def test_a_short_text_is_its_own_abstract_without_markup():
    assert abstract("## Title\n\nSee **this** [link](http://x.y).") == "See this link."
    assert abstract("检索从摘要开始。") == "检索从摘要开始。"
    assert abstract(" \n ") == ""


def test_an_abstract_is_one_or_two_sentences_of_the_prose_and_begins_with_the_lead():
    made = abstract(ENGLISH, AbstractOptions(abstract_tokens=30))
    assert made.startswith("Layered retrieval searches abstracts first.")
    assert "print" not in made
    assert "sunny" not in made
    assert count_tokens(made) <= 30


def test_chinese_sentences_are_joined_without_a_space():
    made = abstract(CHINESE, AbstractOptions(abstract_tokens=30))
    assert made.startswith("分层检索先检索摘要。摘要")
    assert " " not in made


def test_a_question_or_a_very_short_sentence_does_not_lead():
    text = "Hello! How are you today my friend? " + "The index holds the abstracts of all documents. " * 12
    assert abstract(text, AbstractOptions(abstract_tokens=24)).startswith("The index holds")


def test_without_lead_the_most_central_sentence_wins():
    text = (
        "Good morning to everyone in this room. "
        + "We talked about painting. " * 3
        + "Painting is what we talked about. " * 3
    )
    assert "painting" in abstract(text, AbstractOptions(abstract_tokens=12), lead=0).lower()


def test_a_text_of_code_alone_still_gets_an_abstract():
    assert "x = 1" in abstract("```\nx = 1\n```")


@given(st.text(max_size=400), st.integers(8, 60))
def test_abstracts_are_deterministic_and_keep_to_their_size(text: str, tokens: int):
    options = AbstractOptions(abstract_tokens=tokens)
    made = abstract(text, options)
    assert made == abstract(text, options)
    assert count_tokens(made) <= tokens
    assert "\n" not in made


def test_an_overview_lists_headings_and_first_sentences():
    assert overview(ENGLISH).splitlines() == [
        "- Layered retrieval",
        "  - Layered retrieval searches abstracts first.",
        "- Why",
        "  - Reading everything costs time.",
    ]


def test_an_outline_that_is_too_long_loses_sentences_then_depth_then_its_end():
    entries = [Entry(f"Part {n}", "A sentence that says what this part is about. More.", n % 2) for n in range(40)]
    roomy = outline(entries[:4])
    assert roomy.splitlines()[0] == "- Part 0: A sentence that says what this part is about."
    assert roomy.splitlines()[1].startswith("  - Part 1")
    tight = outline(entries, AbstractOptions(overview_tokens=160))
    assert tight.splitlines()[0] == "- Part 0"
    assert "sentence" not in tight
    cut = outline(entries, AbstractOptions(overview_tokens=30))
    assert cut.splitlines()[-1] == f"… and {40 - len(cut.splitlines()) + 1} more"


@given(st.lists(st.builds(Entry, st.text(max_size=30), st.text(max_size=120), st.integers(0, 3)), max_size=30))
def test_outlines_keep_to_their_size(entries: list[Entry]):
    made = outline(entries, AbstractOptions(overview_tokens=64))
    lines = [line for line in made.split("\n") if not line.startswith("… and ")]
    assert count_tokens("\n".join(lines)) <= 64


@pytest.mark.parametrize("text", ["one two three four five six seven", "一二三四五六七八九十", "x" * 100])
def test_clip_cuts_with_an_ellipsis_and_leaves_short_texts_alone(text: str):
    assert clip(text, 100) == text
    assert clip(text, 5).endswith("…")
    assert count_tokens(clip(text, 5)) <= 5


def test_the_first_sentence_has_no_markup():
    assert first_sentence("**Run** `make`. Then wait.") == "Run make."
