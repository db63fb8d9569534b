"""Prints the output of `mcpfleet settings` and `mcpfleet nats`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import typer

from mcpfleet.cli.results import show_json, show_table
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.contracts.permissions import password_variable, server_settings, users
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings, Settings
from mcpfleet.process.settings_table import SettingRow, rows


def show_settings(services: Mapping[str, type[Settings]], *, as_json: bool = False) -> None:
    """Print a table of settings, each once, with the services that read it."""
    readers: dict[SettingRow, list[str]] = {}
    for name, cls in services.items():
        for row in rows(cls):
            readers.setdefault(row, []).append(name)
    shown = []
    for row, names in sorted(readers.items(), key=lambda pair: pair[0].name):
        everybody = len(names) == len(services) > 1
        shown.append((row, "all" if everybody else ", ".join(names)))
    if as_json:
        show_json([{**asdict(row), "read_by": names} for row, names in shown])
    elif sys.stdout.isatty():
        _show_on_terminal(shown)
    else:
        heads = ("setting", "value", "default", "read by", "meaning")
        show_table([heads, *((row.name, row.value, _default(row), names, row.meaning) for row, names in shown)])


def _default(row: SettingRow) -> str:
    return f"{row.default} {row.unit}" if row.unit else row.default


def _show_on_terminal(shown: Sequence[tuple[SettingRow, str]]) -> None:
    """Print a table whose cells are as wide as the terminal lets them be; a value that is not the default is bold."""
    from rich.console import Console  # noqa: PLC0415  # a pipe needs none of it
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table("setting", "value", "default", "meaning", "read by", highlight=False)
    for row, names in shown:
        value = escape(row.value)
        bold = f"[bold]{value}[/]" if row.value != row.default else value
        table.add_row(row.name, bold, escape(_default(row)), escape(row.meaning), names)
    Console().print(table)


def check_pools(pools: Sequence[str], whose: str = "pool's") -> None:
    """Refuse names that cannot stand in a NATS subject; raises ConfigurationError."""
    for pool in pools:
        if not re.fullmatch(POOL_PATTERN, pool):
            raise ConfigurationError(f"{pool!r} is not a valid {whose} name: it must match {POOL_PATTERN}")


def show_nats(pools: Sequence[str], settings: ProcessSettings) -> None:
    """Print lines to include in nats.conf; the passwords stay in the NATS server's environment.

    Raises:
        ConfigurationError: a pool's name cannot stand in a NATS subject.
    """
    check_pools(pools)
    typer.echo("# Made by `mcpfleet nats`: include it in nats.conf. NATS reads each password from its environment:")
    for user in users(pools):
        typer.echo(f"#   {password_variable(user)}")
    typer.echo(server_settings(pools, settings), nl=False)
