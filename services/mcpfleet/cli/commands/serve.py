"""The commands that run one service as this process: `mcpfleet edge`, `worker` and the like."""

from __future__ import annotations

import os
from typing import NoReturn

import typer

from mcpfleet.cli.options import Target


def edge() -> None:
    """Run an edge: HTTP and SSE for clients."""
    serve("edge")


def authorization() -> None:
    """Run authorization: it says who a caller is."""
    serve("authorization")


def catalog() -> None:
    """Run the catalog: it merges what workers offer."""
    serve("catalog")


def subscriptions() -> None:
    """Run subscriptions: it counts listen streams, and stores sessions."""
    serve("subscriptions")


def worker(target: Target) -> None:
    """Run a worker: it hosts an application's tools."""
    os.environ["MCPFLEET_TARGET"] = target
    serve("worker")


def serve(name: str) -> NoReturn:
    """Run a service as this process, and end with its exit code."""
    from mcpfleet.cli.services import run_service  # noqa: PLC0415

    raise typer.Exit(run_service(name))
