"""Errors reach the user as one clear line, never as a traceback."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from contracts.errors import ConfigError, TopKOutOfRange
from deployments.cli.app import app
from deployments.cli.errors import Guarded


def run_with(error: BaseException, *arguments: str) -> "tuple[int, str]":
    guarded = typer.Typer(cls=Guarded, pretty_exceptions_enable=False)

    @guarded.callback()
    def options(context: typer.Context, debug: bool = False) -> None:
        context.obj = debug

    @guarded.command()
    def fail() -> None:
        raise error

    done = CliRunner().invoke(guarded, [*arguments, "fail"])
    assert done.stdout == ""
    return done.exit_code, done.stderr


def test_an_error_shows_code_message_field_and_remedy() -> None:
    code, text = run_with(TopKOutOfRange("top_k is out of range.", field="top_k", remedy="Send 1..50."))
    assert code == 1
    assert text == "RET-4002 top_k is out of range. [top_k]\n→ Send 1..50.\n"


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    _, text = run_with(ConfigError("The setting [bold] is unknown."))
    assert "[bold]" in text


def test_an_unexpected_error_is_one_line_and_says_how_to_see_more() -> None:
    code, text = run_with(RuntimeError("pool is closed"))
    assert code == 1
    assert "RuntimeError: pool is closed" in text
    assert "--debug" in text
    assert "Traceback" not in text


def test_debug_lets_an_unexpected_error_through() -> None:
    with pytest.raises(RuntimeError):
        guarded = typer.Typer(cls=Guarded, pretty_exceptions_enable=False)

        @guarded.callback()
        def options(context: typer.Context, debug: bool = False) -> None:
            context.obj = debug

        @guarded.command()
        def fail() -> None:
            raise RuntimeError

        CliRunner().invoke(guarded, ["--debug", "fail"], catch_exceptions=False)


def test_ctrl_c_ends_with_130() -> None:
    assert run_with(KeyboardInterrupt())[0] == 130


def test_an_exit_code_of_a_command_is_kept() -> None:
    assert run_with(typer.Exit(3))[0] == 3


def test_help_names_every_command() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    for name in ("up", "down", "status", "demo", "ingest", "search", "read", "eval", "keys", "models", "doctor"):
        assert f" {name} " in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "strata://shared/x", "--level", "L0"],
        ["up", "--port", "70000"],
        ["keys", "create", "--role", "root"],
        ["search"],
        ["nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_is_named_with_the_file(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text(json.dumps({"server": {"prot": 1}}))
    done = CliRunner().invoke(app, ["search", "x", "-c", str(config)])
    assert done.exit_code == 1
    assert "server.prot" in done.stderr
    assert str(config) in done.stderr
