"""How errors reach the user: what is wrong, where, and the remedy, on standard error; no traceback unless asked for."""

import errno
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup
from typer.exceptions import TyperException

from contracts.errors import StrataError

FAILED = 1


class Guarded(TyperGroup):
    """A command group that shows errors instead of raising them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error ends it with exit code 1."""
        try:
            return super().invoke(ctx)
        except StrataError as error:
            show(error)
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except Exception as error:
            broken_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
            if ctx.obj or broken_pipe:
                raise
            _print(("Unexpected error: ", "bold red"), f"{type(error).__name__}: {error}")
            _print("strata --debug … shows the traceback.")
        raise typer.Exit(FAILED)


def show(error: StrataError) -> None:
    """Print an error: code and message, then the field at fault and the remedy."""
    _print((f"{error.code} ", "bold red"), error.message, f" [{error.field}]" if error.field else "")
    if error.remedy:
        _print(("→ ", "bold green"), error.remedy)


def _print(*parts: str | tuple[str, str]) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(*parts))
