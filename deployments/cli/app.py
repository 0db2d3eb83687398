"""The tree of commands. Each module holds one group and imports what is heavy inside its commands."""

import typer

from deployments.cli.bench import app as bench
from deployments.cli.calibrate import calibrate
from deployments.cli.corpora import delete, list_corpora, retrieve
from deployments.cli.db import app as db
from deployments.cli.demo import demo
from deployments.cli.doctor import doctor
from deployments.cli.errors import Guarded
from deployments.cli.es import app as es
from deployments.cli.evaluate import app as evaluate
from deployments.cli.faults import faults
from deployments.cli.gateway import app as gateway
from deployments.cli.index import app as index
from deployments.cli.ingest import app as ingest
from deployments.cli.k8s import app as k8s
from deployments.cli.kb import app as kb
from deployments.cli.keys import app as keys
from deployments.cli.metrics import app as metrics
from deployments.cli.models import app as models
from deployments.cli.reindex import reindex
from deployments.cli.rollout import app as rollout
from deployments.cli.search import read, search
from deployments.cli.service import down, status, up

app = typer.Typer(
    name="strata",
    help="Layered context retrieval on Ray Serve: L0 abstracts first, L1 overviews and L2 contents by URI.",
    cls=Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_RUN, _DATA, _SETUP = "Service", "Data and queries", "Set-up"
app.command(rich_help_panel=_RUN)(up)
app.command(rich_help_panel=_RUN)(down)
app.command(rich_help_panel=_RUN)(status)
app.command(rich_help_panel=_RUN)(demo)
app.add_typer(ingest, name="ingest", help="Bring documents into the index, or into a corpus.", rich_help_panel=_DATA)
app.command(rich_help_panel=_DATA)(search)
app.command(rich_help_panel=_DATA)(read)
app.command(rich_help_panel=_DATA)(retrieve)
app.command(rich_help_panel=_DATA)(delete)
app.command("corpora", rich_help_panel=_DATA)(list_corpora)
app.add_typer(evaluate, name="eval", rich_help_panel=_DATA)
app.command(rich_help_panel=_DATA)(calibrate)
app.add_typer(bench, name="bench", rich_help_panel=_DATA)
app.command(rich_help_panel=_DATA)(reindex)
app.add_typer(index, name="index", rich_help_panel=_DATA)
app.add_typer(rollout, name="rollout", rich_help_panel=_DATA)
app.add_typer(kb, name="kb", rich_help_panel=_DATA)
app.add_typer(keys, name="keys", rich_help_panel=_SETUP)
app.add_typer(gateway, name="gateway", rich_help_panel=_SETUP)
app.add_typer(models, name="models", rich_help_panel=_SETUP)
app.add_typer(es, name="es", rich_help_panel=_SETUP)
app.add_typer(db, name="db", rich_help_panel=_SETUP)
app.add_typer(k8s, name="k8s", rich_help_panel=_SETUP)
app.add_typer(metrics, name="metrics", rich_help_panel=_SETUP)
app.command(rich_help_panel=_SETUP)(doctor)
app.command(rich_help_panel=_SETUP)(faults)


@app.callback()
def options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an unexpected error."),
) -> None:
    """Options of every command."""
    context.obj = debug
