"""Targets of commands: an App, or sources, which a process of ours is told as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcpfleet.cli.commands.group import BEHIND
from mcpfleet.process.errors import ConfigurationError

if TYPE_CHECKING:  # it costs start-up time, and an App needs none of it
    from mcpfleet.sources.target import SourceTarget

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET… | -- COMMAND…",
        help="An application (path/to/app.py or module:attribute), or MCP servers that exist: .mcp.json, fleet.toml, "
        "fleet.toml:NAME, server.py:mcp, or behind -- the command that starts one.",
        show_default=False,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Serve this server of a file alone. May be repeated.", show_default=False),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="The interpreter for a server.py whose packages are not here.", show_default=False
    ),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        help="Who shares a server's process, where its file does not say: shared, caller, session or call.",
        show_default=False,
    ),
]


def chosen_target(
    ctx: typer.Context,
    targets: Sequence[str] | None,
    *,
    only: Sequence[str] | None = None,
    isolation: str | None = None,
    python: str | None = None,
) -> str:
    """Return the target of an App as it was typed, and all that names sources as one text.

    Raises:
        ConfigurationError: there is no target, or the words do not fit together.
    """
    from mcpfleet.sources.names import is_server_file, is_source  # noqa: PLC0415  # `--help` needs none of it

    command = tuple(ctx.meta.get(BEHIND, ()))
    named = list(targets or ())[: len(targets or ()) - len(command)]
    if not named and not command:
        raise ConfigurationError(
            "name what to serve: an application (app.py), a file of servers (.mcp.json, fleet.toml), a server.py, or "
            "behind -- the command of a server"
        )
    for each in named:
        check_file(each)
    if python is not None and not any(is_python(each) for each in named):
        raise ConfigurationError("--python: is for a server in a Python file, and none is named")
    servers = [each for each in named if is_source(each) or is_server_file(each) or (python and is_python(each))]
    if not command and len(named) == 1 and not servers:
        for option, given in (("--only", only), ("--isolation", isolation)):
            if given:
                raise ConfigurationError(f"{option}: is for MCP servers that exist, and {named[0]} is an application")
        return named[0]
    for each in named:
        if each not in servers:
            raise ConfigurationError(f"{each}: an application is served alone, without other targets")
    return _source_target(named, command, only or (), isolation, python).model_dump_json(exclude_defaults=True)


def source_target(target: str) -> SourceTarget | None:
    """Return the sources that a text of `chosen_target` names; None for an App's target."""
    if not target.startswith("{"):
        return None
    from mcpfleet.sources.target import SourceTarget  # noqa: PLC0415

    return SourceTarget.model_validate_json(target)


def words_of(target: str) -> list[str]:
    """Return a target as another command of ours takes it, behind all options."""
    sources = source_target(target)
    if sources is None:
        return [target]
    return [*sources.targets, *(["--", *sources.command] if sources.command else [])]


def is_python(target: str) -> bool:
    """Return whether a target is a Python file."""
    return target.partition(":")[0].endswith(".py")


def check_file(target: str) -> None:
    """Refuse a missing file at once: a worker would say so later.

    Raises:
        ConfigurationError: the target is a file that does not exist.
    """
    path = target.partition(":")[0]
    if path.endswith(".py") and not Path(path).is_file():
        raise ConfigurationError(f"{path}: the file does not exist")


def _source_target(
    named: Sequence[str], command: tuple[str, ...], only: Sequence[str], isolation: str | None, python: str | None
) -> SourceTarget:
    from pydantic import ValidationError  # noqa: PLC0415

    from mcpfleet.sources.target import SourceTarget  # noqa: PLC0415

    try:
        return SourceTarget.model_validate(
            {"targets": named, "command": command, "only": only, "isolation": isolation, "python": python}
        )
    except ValidationError:
        raise ConfigurationError(
            f"--isolation: {isolation!r} is unknown: it is shared, caller, session or call"
        ) from None
