"""What is expected of each stage with each fault, and how calls are held to it."""

from pathlib import Path

import pytest

from contracts.trace import STAGES
from deployments.faults.matrix import (
    EXPECTATIONS,
    FAULTS,
    FAULTY_STAGES,
    GRACE_MS,
    Call,
    expectation,
    markdown,
    row,
    table,
)
from stages.shapes import FITS

DOCS = Path(__file__).parents[2] / "docs" / "faults.md"
DEADLINE = 1000.0


def call(*codes: str, status: int = 200, ms: float = 10.0, whole: bool = True) -> Call:
    return Call(status, codes, ms, whole)


def test_the_matrix_has_every_stage_and_every_fault() -> None:
    assert {(each.stage, each.fault) for each in EXPECTATIONS} == {(s, f) for s in FAULTY_STAGES for f in FAULTS}
    assert set(FAULTY_STAGES) == {*STAGES, "reader"} == FITS.keys()


def test_a_search_is_always_answered_and_a_read_is_retryable() -> None:
    """C30."""
    for each in EXPECTATIONS:
        if each.stage in STAGES:
            assert each.statuses == (200,)
        else:
            assert all(error.retryable for error in each.errors)
            assert set(each.statuses) <= {429, 503, 504}


@pytest.mark.parametrize(
    ("stage", "code"), [("seed_search", "RET-5001"), ("rechecker", "RET-5002"), ("assembler", "RET-5003")]
)
def test_stages_that_fail_have_the_codes_of_the_source(stage: str, code: str) -> None:
    """Seed 1 §7."""
    assert code in expectation(stage, "raises").codes


def test_the_table_in_the_docs_is_this_one() -> None:
    assert markdown() in DOCS.read_text(encoding="utf-8")


def test_calls_as_expected_are_no_problem() -> None:
    found = row(expectation("expander", "raises"), [call("RET-5004"), call("RET-5042", ms=2000)], DEADLINE)
    assert found.problems == ()
    assert (found.codes, found.statuses) == ({"RET-5004": 1, "RET-5042": 1}, {200: 2})
    assert (found.in_time, found.calls, found.max_ms) == (1, 2, 2000)


@pytest.mark.parametrize(
    "calls",
    [
        [call("RET-5004"), call("RET-5004", status=500)],
        [call("RET-5004"), call("RET-5041")],
        [call("RET-5004"), call()],
        [call("RET-5042"), call("RET-5042")],
        [call("RET-5004", whole=False)],
        [call()],
    ],
)
def test_anything_else_is_one(calls: list[Call]) -> None:
    assert row(expectation("expander", "raises"), calls, DEADLINE).problems


def test_a_killed_stage_may_be_back_before_the_calls_are_over() -> None:
    assert row(expectation("expander", "killed"), [call("RET-5041"), call()], DEADLINE).problems == ()
    assert row(expectation("reader", "killed"), [call("RET-5041", status=504), call()], DEADLINE).problems == ()
    assert row(expectation("expander", "killed"), [call(), call()], DEADLINE).problems


def test_a_call_is_in_time_within_the_grace() -> None:
    calls = [call("RET-5041", ms=DEADLINE + GRACE_MS), call("RET-5041", ms=DEADLINE + GRACE_MS + 1)]
    assert row(expectation("reranker", "hangs"), calls, DEADLINE).in_time == 1


def test_the_printed_table_has_a_line_a_row_and_the_share_in_time() -> None:
    rows = [row(expectation("expander", "hangs"), [call("RET-5041", ms=9_000), call("RET-5042")], DEADLINE)]
    head, line, share = table(rows)
    assert head.startswith("stage")
    assert "RET-5041×1 RET-5042×1" in line
    assert share.startswith("50.0% of 2 calls")
