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
        "fleet.toml:NAME, a URL, openapi:FILE, or behind -- the command that starts one.",
        show_default=False,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Serve this server of a file alone. May be repeated.", show_default=False),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        help="Who shares a server's process, where its file does not say: shared, caller, session or call.",
        show_default=False,
    ),
]


def chosen_target(
    ctx: typer.Context, targets: Sequence[str] | None, only: Sequence[str] | None = None, isolation: str | None = None
) -> str:
    """Return the target of an App as it was typed, and all that names sources as one text.

    Raises:
        ConfigurationError: there is no target, or the words do not fit together.
    """
    from mcpfleet.sources.names import is_source  # noqa: PLC0415  # `--help` needs none of it

    command = tuple(ctx.meta.get(BEHIND, ()))
    named = list(targets or ())[: len(targets or ()) - len(command)]
    if not named and not command:
        raise ConfigurationError(
            "name what to serve: an application (app.py), a file of servers (.mcp.json, fleet.toml), a URL, or behind "
            "-- the command of a server"
        )
    if not command and len(named) == 1 and not is_source(named[0]):
        for option, given in (("--only", only), ("--isolation", isolation)):
            if given:
                raise ConfigurationError(f"{option}: is for MCP servers that exist, and {named[0]} is an application")
        check_file(named[0])
        return named[0]
    target = _source_target(named, command, only or (), isolation)
    for each in named:
        if not is_source(each):
            raise ConfigurationError(f"{each}: an application is served alone, without other targets")
    return target.model_dump_json(exclude_defaults=True)


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


def check_file(target: str) -> None:
    """Refuse a missing file at once: a worker would say so later.

    Raises:
        ConfigurationError: the target is a file that does not exist.
    """
    path = target.partition(":")[0]
    if path.endswith(".py") and not Path(path).is_file():
        raise ConfigurationError(f"{path}: the file does not exist")


def _source_target(
    named: Sequence[str], command: tuple[str, ...], only: Sequence[str], isolation: str | None
) -> SourceTarget:
    from pydantic import ValidationError  # noqa: PLC0415

    from mcpfleet.sources.target import SourceTarget  # noqa: PLC0415

    try:
        return SourceTarget.model_validate(
            {"targets": tuple(named), "command": command, "only": tuple(only), "isolation": isolation}
        )
    except ValidationError:
        raise ConfigurationError(
            f"--isolation: {isolation!r} is unknown: it is shared, caller, session or call"
        ) from None
