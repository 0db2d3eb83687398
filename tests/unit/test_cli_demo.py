"""The demo's key and its patience with a busy machine; the demo as a whole is what ``make demo`` runs."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from contracts.errors import StrataError
from contracts.hits import RetrievedBlock
from contracts.responses import SearchMemoryResponse
from contracts.stages import NextActions
from contracts.trace import Trace
from deployments.cli import common
from deployments.cli.demo import ask, key_of, stop_other
from deployments.lifecycle import Service
from deployments.settings import parse
from tests.support.keys import Keys

HIT = RetrievedBlock("strata://shared/x", "L0", 1.0, "c", "shared", "x", None, None, (), False, False, "none", "")


class FakeClient:
    """Answers with what it was given, one after the other."""

    def __init__(self, *answers: SearchMemoryResponse) -> None:
        self.answers = list(answers)

    def search(self, **body: object) -> SearchMemoryResponse:
        return self.answers.pop(0)


def answer(*hits: RetrievedBlock, retryable: bool = False) -> SearchMemoryResponse:
    trace = Trace(warnings=[] if hits else ["seed_search: RET-5041: no answer within 400 ms"])
    return SearchMemoryResponse("r", (), (), hits, NextActions(), trace, retryable=retryable)


def test_a_search_that_ran_out_of_time_is_tried_again() -> None:
    client = FakeClient(answer(retryable=True), answer(HIT), answer())
    assert ask(client, "question").hits == (HIT,)
    assert len(client.answers) == 1


def test_a_question_that_finds_nothing_ends_the_demo_with_the_reason() -> None:
    with pytest.raises(StrataError) as error:
        ask(FakeClient(answer(), answer(HIT)), "question")
    assert "RET-5041" in error.value.remedy


@pytest.mark.parametrize(("name", "stays"), [("a.yaml", True), ("b.yaml", False)])
def test_a_running_service_is_used_when_it_has_the_same_settings_and_else_stopped(
    tmp_path: Path, name: str, stays: bool
) -> None:
    service = Service(tmp_path / "run")
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    run = service.start(command, url="http://127.0.0.1:9", config=str(tmp_path / "a.yaml"), detach=True)
    try:
        stop_other(Console(), service, tmp_path / name)
        assert run.is_alive() == stays
    finally:
        service.stop(run, grace=0)


def test_the_demo_makes_a_key_and_keeps_it_while_it_holds(tmp_path: Path) -> None:
    settings = parse({"data_dir": str(tmp_path)})
    first = key_of(settings)
    assert key_of(settings) == first
    assert common.find_key(settings, None) == first
    keys = Keys(settings)
    assert keys.authenticate(first).account_id == common.ACCOUNT
    keys.revoke(first.split("_")[1])
    keys.close()
    assert key_of(settings) != first
