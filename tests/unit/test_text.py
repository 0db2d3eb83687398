"""Text analysis (design decision 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.text import STOP_WORDS, analyze


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Running services were DEPLOYED", ["run", "servic", "deploy"]),
        ("Caroline's café", ["carolin", "cafe"]),
        ("What’s Caroline’s name", ["carolin", "name"]),
        ("ﬁles and ｆｕｌｌ width", ["file", "full", "width"]),
        ("1,000,000 people, 3.5 percent", ["1000000", "peopl", "3.5", "percent"]),
        ("well-known state-of-the-art", ["well", "known", "state", "art"]),
    ],
)
def test_english_is_lowered_folded_and_stemmed(text: str, words: list[str]) -> None:
    assert analyze(text).words == words


@pytest.mark.parametrize(
    "question", ["What is it?", "How did she do that?", "Who were they and why?", "Where's", "什么", "哪些", "为什么"]
)
def test_stop_words_and_question_words_leave_nothing(question: str) -> None:
    assert analyze(question).words == []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("RET-4001", {"ret-4001", "ret", "4001"}),
        ("v1.2.3", {"v1.2.3", "v1"}),
        ("COVID-19", {"covid-19", "covid", "19"}),
        ("Python3", {"python3", "python"}),
        ("run_in_executor", {"run_in_executor", "run", "executor"}),
        ("RayService", {"rayservic", "ray", "servic"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("__init__", {"init"}),
        (
            "concurrent.futures.ProcessPoolExecutor",
            {
                "concurrent.futures.processpoolexecutor",
                "concurr",
                "futur",
                "processpoolexecutor",
                "process",
                "pool",
                "executor",
            },
        ),
    ],
)
def test_codes_versions_and_names_are_kept_whole_and_cut(text: str, terms: set[str]) -> None:
    words = analyze(text).words
    assert set(words) == terms
    assert len(words) == len(terms)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("ret-4001", "Error RET-4001: blank"),
        ("processpoolexecutor", "concurrent.futures.ProcessPoolExecutor"),
        ("process pool executor", "concurrent.futures.ProcessPoolExecutor"),
        ("ray services", "class RayService"),
        ("rayservice", "class RayService"),
        ("v1.2", "since v1.2, as before"),
    ],
)
def test_however_a_name_is_typed_the_stored_one_covers_it(typed: str, stored: str) -> None:
    assert set(analyze(typed).words) <= set(analyze(stored).words)


def test_chinese_is_cut_into_words_in_search_mode_and_pairs() -> None:
    words, bigrams = analyze("北京大学的检索")
    assert {"北京", "大学", "北京大学", "检索"} <= set(words)
    assert bigrams == ["北京", "京大", "大学", "学的", "的检", "检索"]


def test_pairs_never_cross_what_is_not_cjk() -> None:
    assert analyze("检索 API 接口，排序").bigrams == ["检索", "接口", "排序"]
    assert analyze("no CJK here").bigrams == []


def test_mixed_text_keeps_its_order() -> None:
    assert analyze("部署RayService到集群").words == ["部署", "rayservic", "ray", "servic", "到", "集群"]


def test_data_that_is_no_word_is_left_out() -> None:
    assert analyze("key " + "QUJD" * 200).words == ["key"]


@given(st.text())
def test_terms_hold_no_white_space_and_no_stop_word(text: str) -> None:
    """They are stored joined by white space, and an index that splits there must get the same terms back."""
    words, bigrams = analyze(text)
    assert " ".join(words).split() == words
    assert " ".join(bigrams).split() == bigrams
    assert all(len(pair) == 2 for pair in bigrams)
    assert not STOP_WORDS.intersection(words) - {word for word in words if word not in text.lower()}


@given(st.text(alphabet="abcXYZ059._-'中文检索 ", max_size=40))
def test_analysis_does_not_depend_on_what_was_analysed_before(text: str) -> None:
    assert analyze(text) == analyze(text)
    assert analyze(f"{text}\n{text}").words == analyze(text).words * 2
