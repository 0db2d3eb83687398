"""``strata db``: the tables of the SQL database, and their versions."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

app = typer.Typer(help="The SQL database and the version of its tables.", no_args_is_help=True)

_NOT_CURRENT = 1


class Standing(msgspec.Struct, frozen=True):
    """Where a database stands.

    Args:
        database: The file, or hosts and name.
        dialect: sqlite or postgresql.
        revision: Of its tables; ``base`` when there are none.
        needed: Revision that this version needs.
    """

    database: str
    dialect: str
    revision: str
    needed: str


@app.command()
def status(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Show which database is meant and at which revision it is; exit code 1 when another one is needed."""
    from database import migrate  # noqa: PLC0415
    from deployments.backends import database_target  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    target = database_target(settings)
    revision = asyncio.run(migrate.current(target, settings.database))
    found = Standing(str(target), target.dialect, revision, migrate.head())
    if as_json:
        print(render.as_json(found))
    else:
        said = "up to date" if revision == found.needed else f"this version needs {found.needed}"
        _say(f"{found.dialect} {found.database}: revision {revision}, {said}.")
    if revision != found.needed:
        raise typer.Exit(_NOT_CURRENT)


@app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Bring the tables to the revision that this version needs; several at once wait for one another."""
    from database import migrate  # noqa: PLC0415
    from deployments.backends import database_target  # noqa: PLC0415

    settings = common.load_settings(config)
    target = database_target(settings)
    _moved(str(target), *asyncio.run(migrate.upgrade(target, settings.database)))


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="The revision to go back to, or base for no tables at all.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Take the tables back to an older revision; what only newer ones hold is lost."""
    from database import migrate  # noqa: PLC0415
    from deployments.backends import database_target  # noqa: PLC0415

    settings = common.load_settings(config)
    target = database_target(settings)
    if not yes:
        typer.confirm(f"Take {target} back to {revision}? What only newer tables hold is lost.", abort=True)
    _moved(str(target), *asyncio.run(migrate.downgrade(target, settings.database, revision)))


def _moved(database: str, before: str, after: str) -> None:
    _say(f"{database} is at revision {after}" + ("." if before == after else f", before {before}."))


def _say(text: str) -> None:
    Console(highlight=False).print(text, soft_wrap=True, markup=False)
