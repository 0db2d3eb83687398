"""``strata ingest --corpus``, ``retrieve``, ``delete`` and ``corpora`` without a service: a worker of their own."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.errors import InvalidInput
from deployments.cli.app import app
from deployments.cli.corpus_access import dimensions
from deployments.settings import load
from tests.support.keys import Keys

WHERE = ("--user", "ann", "--assistant", "helper", "--conversation", "c-1")
TEA = {"text": "Ann drinks green tea from Hangzhou", "source_id": "tea", "memory_type": "preference"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a key of Ann."""
    monkeypatch.delenv("STRATA_URL", raising=False)
    (tmp_path / "config.yaml").write_text(
        json.dumps({"data_dir": str(tmp_path / "data"), "embedder": {"backend": "deterministic", "dimensions": 32}})
    )
    keys = Keys(load(tmp_path / "config.yaml"))
    token, _ = keys.create("local", user_space="user:ann")
    keys.close()
    monkeypatch.setenv("STRATA_API_KEY", token)
    return tmp_path


def strata(home: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(app, [*arguments, "--config", str(home / "config.yaml")])
    assert "Traceback" not in done.stderr
    return done


def write(home: Path, *items: object) -> str:
    path = home / "items.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def test_what_is_ingested_is_retrieved_and_deleted(home: Path) -> None:
    summary = json.loads(strata(home, "ingest", write(home, TEA), "--corpus", "memory", *WHERE, "--json").stdout)
    assert (summary["stored"], summary["refused"], len(summary["receipts"])) == (1, 0, 1)
    receipt = json.loads(strata(home, "ingest", "receipt", summary["receipts"][0], "--json").stdout)
    assert receipt["state"] == "stored"

    asked = ("retrieve", "green tea", "--corpus", "memory", *WHERE, "--threshold", "0.1")
    (hit,) = json.loads(strata(home, *asked, "--json").stdout)["hits"]
    assert (hit["source_id"], hit["text"]) == ("tea", TEA["text"])
    shown = strata(home, *asked).stdout
    assert "tea" in shown
    assert "path rag" in shown

    gone = strata(home, "delete", "--corpus", "memory", "--source", "tea", *WHERE)
    assert (gone.exit_code, gone.stdout) == (0, "tea: gone\n")
    assert "No hits." in strata(home, *asked).stdout


def test_a_refused_line_is_told_by_file_and_line_and_the_rest_goes_on(home: Path) -> None:
    path = write(home, TEA, {"text": "x", "colour": "red"})
    done = strata(home, "ingest", path, "--corpus", "memory", *WHERE)
    assert done.exit_code == 0
    assert "1 stored, 1 refused" in done.stdout
    assert f"{path}, line 2: The body has an unknown field. [items.0.colour]" in done.stderr
    nothing = strata(home, "ingest", write(home, {"colour": "red"}), "--corpus", "memory", *WHERE)
    assert nothing.exit_code == 3


@pytest.mark.parametrize("missing", ["user_id", "assistant_id", "conversation_id"])
def test_a_missing_dimension_is_named(home: Path, missing: str) -> None:
    """R6."""
    given = {"user_id": "ann", "assistant_id": "helper", "conversation_id": "c-1"}
    given.pop(missing)
    done = strata(home, "retrieve", "tea", "--corpus", "memory", *(f"--dim={k}={v}" for k, v in given.items()))
    assert done.exit_code == 1
    assert f"[{missing}]" in done.stderr


def test_another_users_memories_are_refused(home: Path) -> None:
    """C20."""
    done = strata(home, "retrieve", "tea", "--corpus", "memory", "--user", "bob", *WHERE[2:])
    assert done.exit_code == 1
    assert "RET-4031" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("retrieve", "x", "--corpus", "nothing"), "memory, web"),
        (("retrieve", "x", "--corpus", "memory", "--dim", "user_id"), "name=value"),
        (("retrieve", "x", "--corpus", "memory", "--filter", "{"), "--filter is no JSON"),
        (("retrieve", "x", "--corpus", "memory", *WHERE, "-k", "99"), "RET-4002"),
        (("ingest", "receipt", "unknown"), "RET-4042"),
        (("ingest", "/no/such/place", "--corpus", "memory"), "does not exist"),
        (("ingest", "failures", "retry"), "--all"),
        (("corpora", "--key", "strata_0_0"), "RET-4011"),
    ],
)
def test_what_is_wrong_is_told_with_a_remedy(home: Path, arguments: tuple[str, ...], told: str) -> None:
    done = strata(home, *arguments)
    assert done.exit_code == 1
    assert told in done.stderr


def test_corpora_and_failures_are_listed(home: Path) -> None:
    assert strata(home, "corpora").stdout == "memory\nweb\n"
    assert strata(home, "ingest", "failures", "list").stdout == "Nothing has failed.\n"
    assert strata(home, "ingest", "failures", "drop", "--all").stdout == "0 dropped.\n"


def test_a_first_word_that_names_no_command_is_a_path(home: Path) -> None:
    """Also after options; the group's help is that of the command for paths."""
    path = home / "records.jsonl"
    path.write_text('{"id": 1, "text": "one"}\n')
    assert "1 added" in strata(home, "ingest", str(path)).stdout
    assert "1 unchanged" in strata(home, "ingest", "--kind", "records", str(path)).stdout
    help_text = strata(home, "ingest", "--help").stdout
    assert "--corpus" in help_text
    assert "failures list|retry|drop" in help_text


def test_options_for_users_are_dimensions_by_another_name() -> None:
    assert dimensions(["user_id=ann", "x=a=b"], None, "helper", None) == {
        "user_id": "ann",
        "x": "a=b",
        "assistant_id": "helper",
    }
    with pytest.raises(InvalidInput):
        dimensions(["=x"])
