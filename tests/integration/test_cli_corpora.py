"""Corpora on the command line, through a running service and after it is gone."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli import SMALL, Home, home

__all__ = ["home"]

Strata = Callable[..., subprocess.CompletedProcess[str]]
ANN = ("--user", "ann", "--assistant", "helper")
# As the sets of ../shared/eval, and the upstream LoCoMo, write dialogues: a turn a line.
TURNS = [
    {"id": "c1/D1:1", "conv": "c1", "title": "1:56 pm on 8 May, 2023", "text": "Caroline: I went to a support group."},
    {"id": "c1/D1:2", "conv": "c1", "title": "1:56 pm on 8 May, 2023", "text": "Melanie: What a fine idea!"},
    {"id": "c2/D1:1", "conv": "c2", "title": "9:10 am on 2 June, 2023", "text": "Jon: I lost my job as a banker."},
]
PAGE = {"url": "https://example.org/tea", "title": "Tea", "content": "Longjing is a green tea from Hangzhou."}


def write(path: Path, *lines: object) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def retrieve(strata: Strata, query: str, corpus: str, *where: str) -> Any:
    shown = strata("retrieve", query, "--corpus", corpus, *where, "--threshold", "0.1", "--json")
    return json.loads(shown.stdout)


@pytest.mark.timeout(600)
def test_a_folder_goes_through_the_service_and_is_retrieved_within_its_dimensions(home: Home) -> None:
    """R2, R6, R8: the same commands with and without a service."""
    home.change(**SMALL)
    home.strata("keys", "create", "--user-space", "user:ann", "--save")
    home.strata("up", "--detach")
    folder = home.folder / "locomo"
    folder.mkdir()
    write(folder / "corpus.jsonl", *TURNS)
    write(folder / "queries.jsonl", {"id": "q", "text": "not to be ingested"})

    summary = json.loads(home.here("ingest", str(folder), "--corpus", "memory", *ANN, "--json").stdout)
    assert (summary["stored"], summary["refused"], summary["problems"]) == (2, 0, [])
    state = json.loads(home.here("ingest", "receipt", summary["receipts"][0], "--json").stdout)
    assert state["state"] == "stored"

    first, second = (*ANN, "--conversation", "c1"), (*ANN, "--conversation", "c2")
    answer = retrieve(home.here, "support group", "memory", *first)
    assert "support group" in answer["hits"][0]["text"]
    assert not any("banker" in hit["text"] for hit in answer["hits"])
    assert "banker" in retrieve(home.here, "banker", "memory", *second)["hits"][0]["text"]
    for number in range(0, len(first), 2):
        missing = first[:number] + first[number + 2 :]
        refused = home.here("retrieve", "support group", "--corpus", "memory", *missing, check=False)
        assert refused.returncode == 1
        assert f"[{first[number].removeprefix('--')}_id]" in refused.stderr

    pages = write(home.folder / "pages.jsonl", PAGE)
    home.here("ingest", pages, "--corpus", "web", "--dim", "session_id=s-1")
    (hit,) = retrieve(home.here, "green tea", "web", "--dim", "session_id=s-1")["hits"]
    home.here("rollout", "set", "web.rag", "0")
    end = time.monotonic() + 60
    while retrieve(home.here, "green tea", "web", "--dim", "session_id=s-1")["path"] != "keyword":
        assert time.monotonic() < end, "the running service does not follow the switch"
    home.here("rollout", "reset", "web.rag")

    gone = home.here("delete", "--corpus", "web", "--source", hit["source_id"], "--dim", "session_id=s-1")
    assert gone.stdout == f"{hit['source_id']}: gone\n"
    assert retrieve(home.here, "green tea", "web", "--dim", "session_id=s-1")["hits"] == []

    home.strata("down")
    assert "banker" in retrieve(home.strata, "banker", "memory", *second)["hits"][0]["text"]
    more = write(home.folder / "more.jsonl", {"text": "Ann plays the cello", "memory_type": "fact"})
    home.strata("ingest", more, "--corpus", "memory", *second)
    assert any("cello" in hit["text"] for hit in retrieve(home.strata, "cello", "memory", *second)["hits"])
