"""`mcpfleet tasks list` and `stop`: an operator's commands on all tasks, over the bus."""

from __future__ import annotations

import re

import typer

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, is_undone
from mcpfleet.cli.operate import on_bus
from mcpfleet.cli.results import show_table
from mcpfleet.contracts.operator_tasks import ListedTask, Listing, ListTasks, OperatorTasksClient
from mcpfleet.contracts.tasks import ID_PATTERN
from mcpfleet.process.settings import ProcessSettings


async def list_tasks(settings: ProcessSettings, wanted: ListTasks, as_json: bool = False) -> int:
    """Show tasks of all owners that have not ended; returns the exit code."""

    async def work(bus: Bus) -> int:
        try:
            listing = await OperatorTasksClient(bus).list(wanted)
        except BusError as error:
            typer.echo(f"the tasks service does not answer: {error}", err=True)
            return 1
        if as_json:
            typer.echo(listing.model_dump_json())
        else:
            show_listing(listing)
        return 0

    return await on_bus(settings, "tasks list", work)


async def stop_task(settings: ProcessSettings, task: str, as_json: bool = False) -> int:
    """End a task at once, whichever worker runs it; returns the exit code."""

    if not re.fullmatch(ID_PATTERN, task):
        typer.echo("this is not a task's id: `mcpfleet tasks list` shows the ids", err=True)
        return 1

    async def work(bus: Bus) -> int:
        try:
            stopped = await OperatorTasksClient(bus).stop(task)
        except BusError as error:
            doubt = "was not ended" if is_undone(error) else "may have ended; run the command again"
            typer.echo(f"the task {doubt}: {error}", err=True)
            return 1
        if not stopped.known:
            typer.echo("the task does not exist", err=True)
            return 1
        typer.echo(stopped.model_dump_json() if as_json else f"the task is {stopped.status}")
        return 0

    return await on_bus(settings, "tasks stop", work)


def show_listing(listing: Listing) -> None:
    """Print tasks as a table."""
    if not listing.tasks:
        typer.echo("no tasks")
        return
    rows: list[tuple[str, ...]] = [("task", "tool", "pool", "status", "worker", "attempts", "age", "quiet", "")]
    rows += [_row(task) for task in listing.tasks]
    show_table(rows)
    if listing.more:
        typer.echo("more tasks exist: --most shows up to 200")


def _row(task: ListedTask) -> tuple[str, ...]:
    times = (_seconds(task.age), _seconds(task.quiet))
    asked = "cancel requested" if task.cancel_asked else ""
    return (task.id, task.name, task.pool, task.status, task.holder or "-", str(task.attempts), *times, asked)


def _seconds(value: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s"
