"""``strata demo``: the whole way on real data: model, service, the Python standard library, questions, L1 and L2."""

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from contracts.errors import StrataError, Unauthenticated
from deployments.cli import common
from deployments.cli.common import ACCOUNT, ConfigOption

if TYPE_CHECKING:
    from contracts.responses import SearchMemoryResponse
    from deployments.cli.client import Client
    from deployments.lifecycle import Run, Service
    from deployments.settings import Settings

QUESTIONS = (
    "run a command and stop it after a timeout",
    "read a csv file with named columns",
    "run functions in a pool of processes",
    "find the most common items of a list",
    "create a temporary folder that is removed afterwards",
)
_TOP_K = 3
_ATTEMPTS = 5
# The whole of a long function would push the rest off the screen.
_READ_LINES = 40


def demo(
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Leave the service up at the end.")] = True,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Instead of server.port of the settings.")] = None,
    config: ConfigOption = None,
) -> None:
    """Index the Python standard library, ask it a few questions over HTTP, and read an answer at L1 and L2."""
    from deployments.cli.client import Client  # noqa: PLC0415
    from deployments.cli.service import stop, stopping_on_sigterm  # noqa: PLC0415
    from deployments.lifecycle import Service  # noqa: PLC0415

    console = Console(highlight=False)
    settings = common.load_settings(config)
    service = Service(common.run_folder(settings))
    with stopping_on_sigterm():
        stop_other(console, service, config)
        found_running = service.current() is not None
        try:
            run = _prepare(console, service, settings, port, config)
            with Client(run.url, key_of(settings)) as client:
                best = _questions(console, client)
                _read(console, client, best)
        except BaseException:
            if (started := service.current()) and not found_running:
                stop(service, started)
            raise
        if not keep:
            stop(service, run)
            return
    _next_steps(console, settings, config, run, best)


def stop_other(console: Console, service: "Service", config: Path | None) -> None:
    """Stop a service with other settings: it would answer from another index than the one that is filled."""
    from deployments.cli.service import stop  # noqa: PLC0415

    run = service.current()
    if run and run.config != str(common.config_path(config) or ""):
        console.print(f"The service at {run.url} has other settings ({run.config}); it is stopped.", markup=False)
        stop(service, run)


def _prepare(
    console: Console, service: "Service", settings: "Settings", port: int | None, config: Path | None
) -> "Run":
    """A model, a running service, and an index with the standard library in it."""
    from corpora.context.python_library import PythonLibrarySource  # noqa: PLC0415
    from deployments.cli import ingest  # noqa: PLC0415
    from deployments.cli.service import check_port, launch, wait_up  # noqa: PLC0415
    from models.resolve import pull  # noqa: PLC0415

    check_port(settings, port)
    _step(console, 1, "The embedding model")
    if settings.embedder.backend == "deterministic":
        console.print("deterministic: vectors without meaning, for tests")
    else:
        with console.status("…") as status:
            found, backend = pull(settings.embedder, status.update)
        console.print(f"{settings.embedder.name}, {backend} {found.precision}: {found.folder}", soft_wrap=True)

    _step(console, 2, "The Python standard library goes into the index")
    ingest.show(asyncio.run(ingest.run(settings, ACCOUNT, PythonLibrarySource(config=settings.ingest))))

    _step(console, 3, "The graph: a Ray Serve deployment a stage")
    run = service.current()
    if run is None:
        _, run = launch(settings, common.config_path(config), port, detach=True)
    wait_up(service, run, settings)
    return run


def key_of(settings: "Settings") -> str:
    """The saved key where it still holds, else a new one."""
    from deployments.identity.opening import local_keys  # noqa: PLC0415

    async def find() -> str:
        async with local_keys(settings) as keys:
            try:
                saved = common.key_file(settings).read_text(encoding="utf-8").strip()
                await keys.authenticate(saved)
            except (OSError, Unauthenticated):
                saved, _ = await keys.create(ACCOUNT, role="user")
                common.save_key(settings, saved)
            return saved

    return asyncio.run(find())


def _questions(console: Console, client: "Client") -> str:
    """Ask the questions; returns the URI of the first one's first hit."""
    from deployments.cli import render  # noqa: PLC0415

    # The first search of a service opens and loads what the later ones find ready.
    client.search(query=QUESTIONS[0])
    best = ""
    _step(console, 4, "Questions, over HTTP: score and URI, L0 abstract, what the score is made of")
    for question in QUESTIONS:
        answer = ask(client, question)
        best = best or answer.hits[0].uri
        console.print(Text(f"“{question}”", "bold magenta"))
        console.print(Padding(render.search_answer(answer), (0, 0, 1, 2)))
    return best


def ask(client: "Client", question: str) -> "SearchMemoryResponse":
    """Search, again where the service says that this may help: a machine busy with other things misses deadlines."""
    for _ in range(_ATTEMPTS):
        answer = client.search(query=question, top_k=_TOP_K)
        if answer.hits or not answer.retryable:
            break
    if not answer.hits:
        raise StrataError("A question of the demo found nothing.", remedy="; ".join(answer.trace.warnings))
    return answer


def _read(console: Console, client: "Client", uri: str) -> None:
    from deployments.cli import render  # noqa: PLC0415

    _step(console, 5, "Drilling down: the best hit's overview (L1) and source (L2)")
    for level in ("L1", "L2"):
        console.print(render.read_answer(client.read(uri=uri, level=level), max_lines=_READ_LINES))


def _next_steps(console: Console, settings: "Settings", config: Path | None, run: "Run", uri: str) -> None:
    key = shlex.quote(str(common.key_file(settings)))
    strata, options = common.program(), f" --config {shlex.quote(str(config))}" if config else ""
    _step(console, 6, "Next")
    commands = (
        f'{strata} search "how to run a command with a timeout"{options}',
        f"{strata} read {shlex.quote(uri)} --level L2{options}",
        f'curl -s {run.url}/v1/search_memory -H "Authorization: Bearer $(cat {key})" '
        """-d '{"query": "parse command line arguments", "top_k": 3}'""",
        f"{strata} ingest YOUR_FOLDER{options}",
        f"{strata} status{options}",
        f"{strata} down{options}",
    )
    for command in commands:
        console.print(Text(f"  {command}", "bold"), soft_wrap=True)


def _step(console: Console, number: int, title: str) -> None:
    console.print()
    console.rule(f"[bold]{number}. {title}[/]", align="left")
