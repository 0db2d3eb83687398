"""``strata rollout``: which path answers a corpus, for how many of its users; changes hold without a restart (R8)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer
from rich.console import Console

from contracts.errors import InvalidInput
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from corpora.rag.rollout import Switches, SwitchState
    from deployments.settings import Settings

app = typer.Typer(help="Switch corpora between the graph and the keyword search.", no_args_is_help=True)

Result = TypeVar("Result")
_ALL = 100
NameArgument = Annotated[str, typer.Argument(help="As strata rollout list shows it, for instance web.rag.")]


class Row(msgspec.Struct, frozen=True):
    """A switch; see ``corpora.rag.rollout.SwitchState``."""

    name: str
    enabled: bool
    percent: int
    shadow: bool
    updated_at: int


@app.command("list")
def list_switches(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the switches of all corpora."""
    from corpora.rag.rollout import SwitchState, switch_name  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    known = _asked(settings, lambda switches: switches.all())
    rollout = settings.corpora.rollout
    states = {
        switch_name(corpus): known.get(switch_name(corpus)) or SwitchState.of(rollout.switch(corpus))
        for corpus in sorted(settings.corpora.enabled)
    }
    if as_json:
        print(render.as_json([Row(name, *msgspec.structs.astuple(state)) for name, state in states.items()]))
        return
    rows = (
        (name, "on" if state.enabled else "off", f"{state.percent} %", "yes" if state.shadow else "no", _since(state))
        for name, state in states.items()
    )
    Console().print(render.table(("switch", "state", "users", "shadow", "set"), rows) if states else "No corpora.")


@app.command("set")
def set_switch(
    name: NameArgument,
    value: Annotated[str | None, typer.Argument(help="on, off, or the percentage of users: 0 to 100.")] = None,
    shadow: Annotated[
        bool | None, typer.Option("--shadow/--no-shadow", help="Run the other path too and compare both in metrics.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Set a switch; services follow within a second. A percentage turns it on, off keeps the percentage for later."""
    from corpora.rag.rollout import switch_corpus  # noqa: PLC0415

    settings = common.load_settings(config)
    otherwise = settings.corpora.rollout.switch(switch_corpus(name, settings.corpora.enabled))
    enabled, percent = _parsed(value)
    if value is None and shadow is None:
        raise InvalidInput(
            "Nothing is to be set.", field="value", remedy=f"Say for instance: strata rollout set {name} 25"
        )
    state = _asked(
        settings, lambda switches: switches.set(name, otherwise, enabled=enabled, percent=percent, shadow=shadow)
    )
    print(f"{name}: {described(state)}.")


@app.command()
def reset(name: NameArgument, config: ConfigOption = None) -> None:
    """Forget what was set, so that the settings hold again."""
    from corpora.rag.rollout import SwitchState, switch_corpus  # noqa: PLC0415

    settings = common.load_settings(config)
    otherwise = settings.corpora.rollout.switch(switch_corpus(name, settings.corpora.enabled))
    _asked(settings, lambda switches: switches.reset(name))
    print(f"{name}: {described(SwitchState.of(otherwise))}, as the settings say.")


def described(state: "SwitchState") -> str:
    """What a switch does, in words."""
    on = state.enabled and state.percent
    whom = "all users" if state.percent == _ALL else f"{state.percent} % of the users"
    answer = f"the graph answers {whom}" if on else "the keyword search answers everybody"
    return f"{answer}; the other path runs beside it for comparison" if state.shadow else answer


def _parsed(value: str | None) -> tuple[bool | None, int | None]:
    if value in {None, "on", "off"}:
        return (None if value is None else value == "on"), None
    number = value.removesuffix("%") if value else ""
    if not (number.isascii() and number.isdigit() and int(number) <= _ALL):
        raise InvalidInput(
            "This is no value for a switch.", field="value", remedy="Say on, off, or a number from 0 to 100."
        )
    return True, int(number)


def _asked(settings: "Settings", work: "Callable[[Switches], Awaitable[Result]]") -> Result:
    from corpora.rag.rollout import Switches  # noqa: PLC0415
    from deployments.backends import open_database  # noqa: PLC0415

    async def run() -> Result:
        database = await open_database(settings)
        try:
            return await work(Switches(database))
        finally:
            await database.close()

    return asyncio.run(run())


def _since(state: "SwitchState") -> str:
    if not state.updated_at:
        return "by the settings"
    return datetime.fromtimestamp(state.updated_at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
