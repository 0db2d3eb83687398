"""How answers look on a terminal."""

from io import StringIO

from rich.console import Console

from contracts.hits import Relation, RetrievedBlock, ScoreBreakdown
from contracts.responses import ReadMemoryResponse, SearchMemoryResponse
from contracts.stages import NextActions
from contracts.trace import ReadTrace, Trace
from deployments.cli import render


def block(**changes: object) -> RetrievedBlock:
    values = {
        "uri": "strata://shared/python/subprocess/run",
        "level_hit": "L0",
        "score": 0.5,
        "category": "function",
        "owner_space": "shared",
        "abstract": "Run a command [and] wait.",
        "overview": None,
        "content_excerpt": None,
        "relations": (),
        "has_overview": True,
        "has_content": True,
        "read_recommendation": "read_l1",
        "match_reason": "",
        "scores": ScoreBreakdown(vector=0.25, keyword=0.75),
    }
    return RetrievedBlock(**{**values, **changes})  # type: ignore[arg-type]


def shown(renderable: object) -> str:
    screen = StringIO()
    Console(file=screen, width=100).print(renderable)
    return screen.getvalue()


def answer(*hits: RetrievedBlock, trace: Trace | None = None) -> SearchMemoryResponse:
    return SearchMemoryResponse("r", (), (), hits, NextActions(), trace or Trace())


def test_a_hit_shows_uri_score_abstract_and_the_parts_of_the_score() -> None:
    text = shown(render.search_answer(answer(block())))
    assert "0.500  strata://shared/python/subprocess/run" in text
    assert "Run a command [and] wait." in text
    assert "keyword 0.75 · vector 0.25" in text
    assert "hierarchy" not in text


def test_the_time_of_each_stage_and_the_warnings_are_shown() -> None:
    trace = Trace(seed_ms=12, hierarchical_ms=7, total_ms=31, warnings=["RET-5004: embedder failed"])
    text = shown(render.search_answer(answer(trace=trace)))
    for part in ("seed 12", "expand 7", "31 ms", "RET-5004: embedder failed", "No hits."):
        assert part in text


def test_a_long_text_is_cut_where_wanted() -> None:
    source = "\n".join(f"line {i}" for i in range(10))
    read = ReadMemoryResponse("r", block(level_hit="L2", content_excerpt=source), ReadTrace())
    assert "line 9" in shown(render.read_answer(read))
    cut = shown(render.read_answer(read, max_lines=4))
    assert "line 3" in cut
    assert "line 4" not in cut
    assert "6 more lines" in cut


def test_relations_and_an_empty_level_are_told() -> None:
    edge = Relation("strata://shared/python/subprocess/Popen", "uses", 0.8)
    text = shown(render.read_answer(ReadMemoryResponse("r", block(level_hit="L1", relations=(edge,)), ReadTrace())))
    assert "nothing at this level" in text
    assert "uses → strata://shared/python/subprocess/Popen (0.80)" in text


def test_brackets_in_a_table_are_text_and_no_markup() -> None:
    console = Console(width=60, record=True, file=StringIO())
    console.print(render.table(("found",), [["extra [torch] is missing"]]))
    assert "extra [torch] is missing" in console.export_text()
