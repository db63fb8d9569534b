"""Runs one service as this process."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import typer

from mcpfleet.cli.known import SETTINGS
from mcpfleet.process.run import run


def serve(name: str) -> NoReturn:
    """Run a service, which is imported only now, and end with its exit code."""
    service = import_module(f"mcpfleet.{name}.__main__").SERVICE
    raise typer.Exit(run(service, known=SETTINGS.values()))
