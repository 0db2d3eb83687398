"""``strata gateway``: users of the memory gateway, and what belongs to them."""

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from contracts.errors import InvalidInput
from deployments.cli import common
from deployments.cli.common import ACCOUNT, AccountOption, ConfigOption, JsonOption

if TYPE_CHECKING:
    import msgspec

    from corpora.rag.types import Receipt, SourceDocument
    from deployments.settings import Settings
    from gateway.store import GatewayStore

app = typer.Typer(help="The memory gateway: its users, and what belongs to them.", no_args_is_help=True)
users = typer.Typer(help="Who may search, and with which key.", no_args_is_help=True)
resources = typer.Typer(
    help="Resources of users, with the session that each is remembered under.", no_args_is_help=True
)
tombstones = typer.Typer(help="Memories that users do not want to see.", no_args_is_help=True)
overrides = typer.Typer(help="What users read in place of a memory's text.", no_args_is_help=True)
agents = typer.Typer(help="Agents of users, where gateway.agent_ownership is check.", no_args_is_help=True)
for name, group in (
    ("users", users),
    ("resources", resources),
    ("tombstones", tombstones),
    ("overrides", overrides),
    ("agents", agents),
):
    app.add_typer(group, name=name)

Result = TypeVar("Result")
_KEY_BYTES = 32

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="As clients send it: user_id.")]
MemoryArgument = Annotated[str, typer.Argument(metavar="MEMORY", help="Id of a memory, as results show it.")]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", help="Holds the key that clients have already; - reads it. By default one is made."),
]


@users.command("add")
def add_user(
    user: UserArgument,
    account: AccountOption = ACCOUNT,
    space: Annotated[
        str, typer.Option(help="Owner space of its memory; by default that of the memory corpus, memory.USER.")
    ] = "",
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Add a user. A key that is made is shown once; only its hash is stored."""
    from gateway.login import Hasher  # noqa: PLC0415
    from gateway.memories import user_space  # noqa: PLC0415
    from gateway.store import UserRow  # noqa: PLC0415

    settings = common.load_settings(config)
    key = _key(key_file)
    row = UserRow(user, Hasher(settings.gateway.login).hashed(key), account, space or user_space(user))
    _asked(settings, lambda store: store.add_user(row))
    _hand_out(key, key_file, f"Added {user}.")


@users.command("key")
def change_key(user: UserArgument, key_file: KeyFileOption = None, config: ConfigOption = None) -> None:
    """Give a user another key; the old one is refused from now on."""
    from gateway.login import Hasher  # noqa: PLC0415

    settings = common.load_settings(config)
    key = _key(key_file)
    key_hash = Hasher(settings.gateway.login).hashed(key)
    _known(_asked(settings, lambda store: store.change_key(user, key_hash)), "user")
    _hand_out(key, key_file, f"Changed the key of {user}.")


@users.command("list")
def list_users(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the users, without their keys."""
    import msgspec  # noqa: PLC0415

    rows = _asked(common.load_settings(config), lambda store: store.users())
    shown = [msgspec.structs.asdict(row) for row in rows]
    _show([{name: value for name, value in row.items() if name != "key_hash"} for row in shown], as_json=as_json)


@users.command("remove")
def remove_user(user: UserArgument, config: ConfigOption = None) -> None:
    """Remove a user with its resources, tombstones, overrides and agents; its memories stay."""
    _known(_asked(common.load_settings(config), lambda store: store.remove_user(user)), "user")
    print(f"Removed {user}.")


@resources.command("add")
def add_resource(
    user: UserArgument,
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="Its id.")],
    session: Annotated[str, typer.Option(help="The session that it is remembered under.")],
    uri: Annotated[str, typer.Option(help="Shown with memories of that session.")],
    config: ConfigOption = None,
) -> None:
    """Add a resource to a user, or replace the one of its id."""
    from gateway.store import Resource  # noqa: PLC0415

    _put(config, user, Resource(resource, session, uri))


@tombstones.command("add")
def add_tombstone(user: UserArgument, memory: MemoryArgument, config: ConfigOption = None) -> None:
    """Show a memory to a user no more."""
    from gateway.store import Tombstone  # noqa: PLC0415

    _put(config, user, Tombstone(memory))


@overrides.command("add")
def add_override(
    user: UserArgument,
    memory: MemoryArgument,
    text: Annotated[str, typer.Argument(help="What is shown in place of the memory's text.")],
    active: Annotated[bool, typer.Option(help="Whether it holds.")] = True,
    config: ConfigOption = None,
) -> None:
    """Show a user another text for a memory, or replace what was shown so."""
    from gateway.store import Override  # noqa: PLC0415

    _put(config, user, Override(memory, text, active))


@agents.command("add")
def add_agent(
    user: UserArgument, agent: Annotated[str, typer.Argument(metavar="AGENT")], config: ConfigOption = None
) -> None:
    """Register an agent for a user."""
    from gateway.store import Agent  # noqa: PLC0415

    _put(config, user, Agent(agent))


def _belongings(group: typer.Typer, kind_name: str) -> None:
    """The commands ``list`` and ``remove`` of what belongs to users."""

    def kind() -> Any:
        from gateway import store  # noqa: PLC0415

        return getattr(store, kind_name)

    @group.command("list", help="List them.")
    def listing(user: UserArgument, as_json: JsonOption = False, config: ConfigOption = None) -> None:
        import msgspec  # noqa: PLC0415

        rows = _asked(common.load_settings(config), lambda store: store.owned(kind(), user))
        _show([msgspec.structs.asdict(row) for row in rows], as_json=as_json)

    @group.command("remove", help="Take one from a user.")
    def remove(
        user: UserArgument, key: Annotated[str, typer.Argument(metavar="ID")], config: ConfigOption = None
    ) -> None:
        _known(_asked(common.load_settings(config), lambda store: store.remove(kind(), user, key)), kind_name.lower())
        print(f"Removed {key}.")


_belongings(resources, "Resource")
_belongings(tombstones, "Tombstone")
_belongings(overrides, "Override")
_belongings(agents, "Agent")


@app.command("import")
def import_memories(
    path: Annotated[Path, typer.Argument(help="An upstream service's answer (.json), or a memory a line (.jsonl).")],
    user: Annotated[str, typer.Option(help="Whose memory it becomes, or whose account the agent is of.")],
    agent: Annotated[str | None, typer.Option(help="Make it this agent's memory.")] = None,
    config: ConfigOption = None,
) -> None:
    """Bring memories in the upstream's form into the memory corpus; the running service does so in a moment."""
    from deployments.gateway import imports  # noqa: PLC0415
    from gateway.memories import agent_space  # noqa: PLC0415

    settings = common.load_settings(config)
    found = imports.read(path)
    row = _asked(settings, lambda store: store.user(user))
    if row is None:
        raise InvalidInput("There is no such user.", field="user", remedy="See: strata gateway users list")
    space = agent_space(agent) if agent else row.space
    documents = list(imports.documents(found, space, settings.corpora.memory.default_sensitivity))
    receipt = asyncio.run(_submitted(settings, row.account_id, documents)) if documents else None
    print(f"Took in {len(documents)} memories for {space}" + (f", receipt {receipt.receipt_id}." if receipt else "."))


async def _submitted(settings: "Settings", account: str, documents: "list[SourceDocument]") -> "Receipt":
    from corpora.rag.queue import IngestQueue  # noqa: PLC0415
    from deployments.backends import open_database  # noqa: PLC0415
    from gateway.memories import CORPUS  # noqa: PLC0415

    database = await open_database(settings)
    try:
        return await IngestQueue(database, settings.corpora.ingest).submit(account, CORPUS, documents)
    finally:
        await database.close()


def _put(config: Path | None, user: str, item: "msgspec.Struct") -> None:
    _asked(common.load_settings(config), lambda store: store.put(item, user))  # type: ignore[type-var]
    print("Done.")


def _asked(settings: "Settings", work: "Callable[[GatewayStore], Awaitable[Result]]") -> Result:
    from deployments.backends import open_database  # noqa: PLC0415
    from gateway.store import GatewayStore  # noqa: PLC0415

    async def run() -> Result:
        database = await open_database(settings)
        try:
            return await work(GatewayStore(database))
        finally:
            await database.close()

    return asyncio.run(run())


def _key(key_file: Path | None) -> str:
    """The key of a file, or a new one."""
    if key_file is None:
        return secrets.token_urlsafe(_KEY_BYTES)
    try:
        key = sys.stdin.readline() if str(key_file) == "-" else key_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"{key_file} can't be read.", field="key-file") from None
    if not key.strip():
        raise InvalidInput(f"{key_file} holds no key.", field="key-file")
    return key.strip()


def _hand_out(key: str, key_file: Path | None, said: str) -> None:
    """A key that was given need not be on the screen."""
    print(said if key_file else key)


def _known(was_there: bool, what: str) -> None:
    if not was_there:
        raise InvalidInput(f"There is no such {what}.", field=what, remedy="See the list.")


def _show(rows: list[dict[str, object]], *, as_json: bool) -> None:
    from deployments.cli import render  # noqa: PLC0415

    if as_json:
        print(render.as_json(rows))
    elif rows:
        Console().print(render.table(rows[0], (map(str, row.values()) for row in rows)))
    else:
        print("None.")
