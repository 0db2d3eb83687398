"""The rules by which method agentic plans and follows up without a language model."""

import pytest

from gateway.agentic import follow_ups, parts_of


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("where does Ann live", []),
        ("Where does Ann live, and what does she drink?", ["Where does Ann live", "what does she drink"]),
        ("安住在哪里？她喝什么茶？", ["安住在哪里", "她喝什么茶"]),
        ("and the?", []),
        ("", []),
    ],
)
def test_a_question_is_cut_into_the_parts_that_ask_for_something(question: str, parts: list[str]) -> None:
    assert parts_of(question) == parts


@pytest.mark.parametrize(
    ("question", "texts", "queries"),
    [
        ("Which city is home to Ann's manager?", ["Ann's manager is Zoe Park"], ["city home Zoe Park"]),
        ("green tea", ["I had green tea", "tea"], []),
        ("green tea", [], ["green tea"]),
        ("管理员住在京都吗", ["管理员是王小明"], ["住 在 京都 王小明"]),
    ],
)
def test_what_no_text_mentions_is_asked_for_with_the_names_that_came_up(
    question: str, texts: list[str], queries: list[str]
) -> None:
    assert follow_ups(question, texts) == queries
