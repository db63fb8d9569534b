"""`mcpfleet tasks`: runs the service, or with a subcommand, works on tasks."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mcpfleet.cli.commands.group import MARKUP, GroupedCommands
from mcpfleet.cli.commands.serve import serve
from mcpfleet.cli.options import Arguments, Key, Timeout, Token, Url
from mcpfleet.process.errors import ConfigurationError

app = typer.Typer(
    cls=GroupedCommands,
    help="Start, show and answer tasks. Without a command, run the tasks service, which keeps them.",
    invoke_without_command=True,
    rich_markup_mode=MARKUP,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_OWNER: Final = "For a task's owner"
_OPERATOR: Final = "For operators"
Task = Annotated[str, typer.Argument(help="The task's id.")]
Json = Annotated[bool, typer.Option("--json", help="Print the task as JSON.")]


@app.callback()
def tasks(context: typer.Context) -> None:
    """Run the tasks service, unless a command follows."""
    if context.invoked_subcommand is None:
        serve("tasks")


@app.command(rich_help_panel=_OWNER)
def start(  # noqa: PLR0917
    url: Url,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Arguments = None,
    key: Key = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Call a tool as a task, and print the task's id."""
    from mcpfleet.cli.task_client import run_start  # noqa: PLC0415

    pairs = arguments or []
    raise typer.Exit(run_start(url, tool, pairs, key=key, token=token, timeout=timeout, as_json=as_json))


@app.command(rich_help_panel=_OWNER)
def answer(
    url: Url,
    task: Task,
    key: Annotated[str, typer.Argument(help="The question's key, as `get` and `watch` show it.")],
    fields: Arguments = None,
    *,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer.")] = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Answer a question for which your task waits."""
    from mcpfleet.cli.task_client import run_answer  # noqa: PLC0415

    raise typer.Exit(run_answer(url, task, key, fields or [], token=token, timeout=timeout, declines=decline))


@app.command(rich_help_panel=_OWNER)
def get(url: Url, task: Task, as_json: Json = False, timeout: Timeout = 30.0, token: Token = None) -> None:
    """Show your task."""
    from mcpfleet.cli.task_client import run_get  # noqa: PLC0415

    raise typer.Exit(run_get(url, task, token=token, timeout=timeout, as_json=as_json))


@app.command(rich_help_panel=_OWNER)
def cancel(url: Url, task: Task, timeout: Timeout = 30.0, token: Token = None) -> None:
    """Cancel your task."""
    from mcpfleet.cli.task_client import run_cancel  # noqa: PLC0415

    raise typer.Exit(run_cancel(url, task, token=token, timeout=timeout))


@app.command(rich_help_panel=_OWNER)
def watch(url: Url, task: Task, as_json: Json = False, timeout: Timeout = 30.0, token: Token = None) -> None:
    """Show each change of your task until it has ended."""
    from mcpfleet.cli.task_client import run_watch  # noqa: PLC0415

    raise typer.Exit(run_watch(url, task, token=token, timeout=timeout, as_json=as_json))


@app.command("list", rich_help_panel=_OPERATOR)
def list_(
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only tasks that no worker takes, or that do not stop.")
    ] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only tasks that wait for answers.")] = False,
    retried: Annotated[bool, typer.Option("--retried", help="Only tasks with failed attempts.")] = False,
    pool: Annotated[str | None, typer.Option(help="Only tasks of this pool.")] = None,
    most: Annotated[int, typer.Option(help="The number of tasks to show, the oldest first.", min=1, max=200)] = 50,
) -> None:
    """Show tasks of all owners that have not ended; for operators, over the bus."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate_tasks import list_tasks  # noqa: PLC0415
    from mcpfleet.cli.show import check_pools  # noqa: PLC0415
    from mcpfleet.contracts.operator_tasks import ListTasks, Why  # noqa: PLC0415

    chosen = [why for why, is_it in ((Why.STUCK, stuck), (Why.WAITING, waiting), (Why.RETRIED, retried)) if is_it]
    if len(chosen) > 1:
        raise ConfigurationError("give at most one of --stuck, --waiting and --retried")
    check_pools([pool] if pool else [])
    wanted = ListTasks(why=chosen[0] if chosen else Why.ALL, pool=pool, most=most)
    raise typer.Exit(anyio.run(list_tasks, operator_settings(), wanted))


@app.command(rich_help_panel=_OPERATOR)
def stop(task: Task) -> None:
    """End any task at once, whatever its owner or worker; for operators, over the bus."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate_tasks import stop_task  # noqa: PLC0415

    raise typer.Exit(anyio.run(stop_task, operator_settings(), task))
