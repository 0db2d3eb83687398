"""The worked example of ``docs/knowledge-base.md``, taken from there and run."""

import asyncio
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from corpora.knowledge_base.config import KnowledgeBaseConfig
from deployments.cli.app import app

DOCS = (Path(__file__).parents[2] / "docs" / "knowledge-base.md").read_text("utf-8")


def block(kind: str, holding: str = "") -> str:
    """The one code block of a kind that holds some words."""
    (found,) = (code for code in re.findall(rf"```{kind}\n(.*?)```", DOCS, re.DOTALL) if holding in code)
    return str(found)


def strata(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--account", "acme"])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_worked_example_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path / "home"))
    (tmp_path / "garments.csv").write_text(block("csv"), encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text(block("jsonl"), encoding="utf-8")
    assert strata("kb", "import", "entities", str(tmp_path / "garments.csv")).startswith("4 rows read, 4 written")
    assert strata("kb", "import", "chunks", str(tmp_path / "texts.jsonl")).startswith("4 rows read, 4 written")
    names: dict[str, object] = {}
    exec(block("python", "local_knowledge_base"), names)
    asyncio.run(names["main"]())  # type: ignore[operator]
    assert capsys.readouterr().out == block("text")


def test_the_settings_that_the_page_shows_are_valid() -> None:
    assert KnowledgeBaseConfig.model_validate(yaml.safe_load(block("yaml"))["knowledge_base"]).filter_named("season")
