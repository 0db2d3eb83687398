"""Groups of commands one of which needs no name."""

from typing import Any, ClassVar

from typer.core import TyperGroup


class DefaultCommand(TyperGroup):
    """A group in which ``strata GROUP ARGUMENTS`` is ``strata GROUP COMMAND ARGUMENTS`` for one command."""

    command: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without a command's name first, all are those of that command."""
        named = args[0] in {*self.commands, "--help"} if args else self.no_args_is_help
        return super().parse_args(ctx, args if named else [self.command, *args])
