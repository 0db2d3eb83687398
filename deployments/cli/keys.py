"""``strata keys``: make, list, rotate and revoke API keys."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from contracts.errors import InvalidInput
from deployments.cli import common
from deployments.cli.common import ACCOUNT, AccountOption, ConfigOption, JsonOption

if TYPE_CHECKING:
    from deployments.identity.keys import ApiKey, KeyStore
    from deployments.settings import Settings

app = typer.Typer(help="API keys: who may ask, and what they see.", no_args_is_help=True)

Result = TypeVar("Result")

_DAY_MS = 24 * 3600 * 1000
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}
_SAVE = typer.Option("--save", help="Let this machine's commands use it.")


class RoleName(StrEnum):
    """Roles of ``contracts.context``."""

    USER = "user"
    AGENT = "agent"
    ADMIN = "admin"


@app.command()
def create(
    account: AccountOption = ACCOUNT,
    role: Annotated[RoleName, typer.Option(help="What the key sees; admin sees every space.")] = RoleName.USER,
    user_space: Annotated[str, typer.Option(help="For instance user:alice.")] = "",
    agent_space: Annotated[str, typer.Option(help="For instance agent:planner.")] = "",
    spaces: Annotated[list[str] | None, typer.Option(help="A further space that the key grants; repeatable.")] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0.001, help="Days until it expires; by default never.")
    ] = None,
    save: Annotated[bool, _SAVE] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make a key. It is shown once; only its hash is stored."""
    settings = common.load_settings(config)
    expires_at = 0 if expires_days is None else int(time.time() * 1000 + expires_days * _DAY_MS)
    token, key = _with_keys(
        settings,
        lambda keys: keys.create(
            account,
            role=role.value,
            user_space=user_space,
            agent_space=agent_space,
            spaces=tuple(spaces or ()),
            expires_at=expires_at,
        ),
    )
    _hand_out(settings, token, key, save=save, as_json=as_json)


@app.command("list")
def list_keys(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the keys, without their secrets."""
    from deployments.cli import render  # noqa: PLC0415

    keys = _with_keys(common.load_settings(config), lambda keys: keys.list())
    if as_json:
        print(render.as_json(keys))
        return
    columns = ("id", "account", "role", "spaces", "created", "last used", "state")
    Console().print(render.table(columns, map(_row, keys)) if keys else "No keys.")


def _milliseconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([smhd])|0", text)
    if not found:
        raise typer.BadParameter("write a number and s, m, h or d, for instance 24h")
    return int(found[1]) * _UNITS_MS[found[2]] if found[1] else 0


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="As strata keys list shows it.")],
    overlap: Annotated[
        int, typer.Option(parser=_milliseconds, metavar="TIME", help="How long the old key still holds; 0 ends it now.")
    ] = "24h",  # type: ignore[assignment]
    save: Annotated[bool, _SAVE] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make a key of the same identity in the place of another, which holds a while longer."""
    settings = common.load_settings(config)
    token, key = _with_keys(settings, lambda keys: keys.rotate(key_id, overlap))
    _hand_out(settings, token, key, save=save, as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="As strata keys list shows it.")], config: ConfigOption = None
) -> None:
    """Refuse a key from now on."""
    if not _with_keys(common.load_settings(config), lambda keys: keys.revoke(key_id)):
        raise InvalidInput("There is no active key of this id.", field="key_id", remedy="See: strata keys list")
    print(f"Revoked {key_id}.")


def _with_keys(settings: "Settings", do: Callable[["KeyStore"], Awaitable[Result]]) -> Result:
    from deployments.identity.opening import local_keys  # noqa: PLC0415

    async def run() -> Result:
        async with local_keys(settings) as keys:
            return await do(keys)

    return asyncio.run(run())


def _hand_out(settings: "Settings", token: str, key: "ApiKey", *, save: bool, as_json: bool) -> None:
    saved = common.save_key(settings, token) if save else None
    if as_json:
        from deployments.cli.render import as_json as to_json  # noqa: PLC0415

        print(to_json({"key": token, "key_id": key.key_id, "account_id": key.account_id, "role": key.role}))
    elif saved:
        # Not shown: what is in the file need not be on the screen.
        line = Text.assemble("Key ", (key.key_id, "bold"), f" for account {key.account_id} saved to {saved}")
        Console(highlight=False).print(line, soft_wrap=True)
    else:
        print(token)


def _row(key: "ApiKey") -> tuple[str, ...]:
    spaces = " ".join(filter(None, (key.user_space, key.agent_space, *key.spaces)))
    state = "active" if key.active() else "revoked" if key.ends_at == key.revoked_at else "expired"
    if key.ends_at and key.active():
        state = f"until {_day(key.ends_at)}"
    used = _day(key.used_at) if key.used_at else "-"
    return key.key_id, key.account_id, key.role, spaces or "-", _day(key.created_at), used, state


def _day(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, tz=UTC).strftime("%Y-%m-%d")
