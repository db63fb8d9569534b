"""The root of the command line: its groups of commands, each loaded by name when it is wanted.

Imports are most of a command's time. So a command costs its own module and no other's.
"""

from __future__ import annotations

import sys
from collections import UserDict
from importlib import import_module
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

_Markup: TypeAlias = Literal["rich", None]
MARKUP: Final[_Markup] = "rich" if sys.stdout.isatty() and sys.stderr.isatty() else None
"""How help and usage errors are printed: boxes and colours are for a terminal alone."""

COMMANDS: Final = {
    "Develop": {
        "dev": "develop:dev",
        "check": "develop:check",
        "messages": "develop:messages",
    },
    "Call": {
        "call": "client:call",
        "list": "client:list_",
        "read": "client:read",
        "prompt": "client:prompt",
        "complete": "client:complete",
        "watch": "client:watch",
        "tasks": "tasks:app",
        "stdio": "connect:stdio",
        "install": "connect:install",
    },
    "Operate": {
        "publish": "operate:publish",
        "revoke": "operate:revoke",
        "withdraw": "operate:withdraw",
        "settings": "operate:settings",
        "nats": "operate:nats",
        "migrate": "operate:migrate",
    },
    "Run a service": {
        "edge": "serve:edge",
        "worker": "serve:worker",
        "authorization": "serve:authorization",
        "catalog": "serve:catalog",
        "subscriptions": "serve:subscriptions",
    },
}
"""For each group of `--help`: its commands, each with its module in this folder, and its function or group there."""
BEHIND: Final = "mcpfleet.behind_dashes"
"""The member of a context's `meta` that has the words behind `--`."""
EXIT_CODES: Final = "Exit codes: 0 for success, 1 for a failure, 2 for a wrong option, argument or setting."


class GroupedCommands(TyperGroup):
    """A group whose plain help shows commands below the headings that the rich one shows as panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by heading, each with the first sentence of its help."""
        headings: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                headings.setdefault(command.rich_help_panel or "Commands", []).append((name, command))
        longest = max((len(name) for commands in headings.values() for name, _ in commands), default=0)
        for heading, commands in headings.items():
            with formatter.section(heading):
                rows = [
                    (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                    for name, command in commands
                ]
                formatter.write_dl(rows)


class DashedCommand(TyperCommand):
    """A command that knows which of its words stood behind `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note them, and read all words as usual."""
        ctx.meta[BEHIND] = tuple(args[args.index("--") + 1 :]) if "--" in args else ()
        return super().parse_args(ctx, args)


class _LazyCommands(UserDict[str, Any]):
    """Commands by name. A command is made from its declaration when it is wanted for the first time."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if isinstance(found, _Place):
            found = self.data[name] = found.load(name)
        return found


class _Place:
    """A place in this folder where a command is declared."""

    def __init__(self, place: str, heading: str) -> None:
        self._module, _, self._attribute = place.partition(":")
        self._heading = heading

    def load(self, name: str) -> Any:
        """Import the declaration, and make the command."""
        declared = getattr(import_module(f"{__package__}.{self._module}"), self._attribute)
        if isinstance(declared, typer.Typer):
            command: Any = get_command(declared)
            command.name, command.rich_help_panel = name, self._heading
            return command
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=MARKUP)
        alone.command(name, cls=DashedCommand, rich_help_panel=self._heading)(declared)
        return get_command(alone)


class RootCommands(GroupedCommands):
    """The commands of `COMMANDS`."""

    def __init__(self, **options: Any) -> None:
        """Take what typer gives a group, and our own commands."""
        super().__init__(**options)
        places = {name: _Place(place, heading) for heading, names in COMMANDS.items() for name, place in names.items()}
        self.commands = _LazyCommands(places)


app = typer.Typer(
    name="mcpfleet",
    cls=RootCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"mcpfleet {version('mcpfleet')}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def mcpfleet(
    version: Annotated[  # its callback has done it
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """One MCP server to its clients, however many processes serve it."""
