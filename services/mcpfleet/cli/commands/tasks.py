"""`mcpfleet tasks`: runs the service, or with a subcommand, works on tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mcpfleet.cli.commands.group import MARKUP, GroupedCommands
from mcpfleet.cli.commands.serve import serve
from mcpfleet.cli.options import Answers, Arguments, Json, Key, Out, Timeout, Token, Tool, Url
from mcpfleet.process.errors import ConfigurationError

if TYPE_CHECKING:
    from mcpfleet.cli.task_commands import TaskCaller

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


@app.callback()
def tasks(context: typer.Context) -> None:
    """Run the tasks service, unless a command follows."""
    if context.invoked_subcommand is None:
        serve("tasks")


@app.command(rich_help_panel=_OWNER)
def start(  # noqa: PLR0917
    url: Url,
    tool: Tool,
    arguments: Arguments = None,
    key: Key = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Call a tool as a task, and print the task's id."""
    from mcpfleet.cli.task_commands import run_start  # noqa: PLC0415

    raise typer.Exit(run_start(_owner(url, token, timeout, as_json), tool, arguments or [], key))


@app.command(rich_help_panel=_OWNER)
def answer(
    url: Url,
    task: Task,
    key: Annotated[str, typer.Argument(help="The question's key, as `get` and `watch` show it.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(help="name=value for the form's fields; without any, the terminal asks.", show_default=False),
    ] = None,
    *,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Answer a question for which your task waits."""
    from mcpfleet.cli.task_commands import run_answer  # noqa: PLC0415

    raise typer.Exit(run_answer(_owner(url, token, timeout, as_json), task, key, fields or [], declines=decline))


@app.command(rich_help_panel=_OWNER)
def get(  # noqa: PLR0917
    url: Url, task: Task, as_json: Json = False, out: Out = None, timeout: Timeout = 30.0, token: Token = None
) -> None:
    """Show your task: its state, its questions with the commands that answer them, its result."""
    from mcpfleet.cli.task_commands import run_get  # noqa: PLC0415

    raise typer.Exit(run_get(_owner(url, token, timeout, as_json, out), task))


@app.command(rich_help_panel=_OWNER)
def cancel(url: Url, task: Task, as_json: Json = False, timeout: Timeout = 30.0, token: Token = None) -> None:
    """Cancel your task."""
    from mcpfleet.cli.task_commands import run_cancel  # noqa: PLC0415

    raise typer.Exit(run_cancel(_owner(url, token, timeout, as_json), task))


@app.command(rich_help_panel=_OWNER)
def watch(  # noqa: PLR0917
    url: Url,
    task: Task,
    answers: Answers = None,
    as_json: Json = False,
    out: Out = None,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Show each change of your task until it has ended, and ask here what it asks."""
    from mcpfleet.cli.task_commands import run_watch  # noqa: PLC0415

    raise typer.Exit(run_watch(_owner(url, token, timeout, as_json, out), task, answers or []))


def _owner(url: str, token: str | None, timeout: float, as_json: bool, out: Path | None = None) -> TaskCaller:
    from mcpfleet.cli.results import Output  # noqa: PLC0415
    from mcpfleet.cli.task_commands import TaskCaller  # noqa: PLC0415

    return TaskCaller(url, token, timeout, Output(as_json=as_json, file=out))


@app.command("list", rich_help_panel=_OPERATOR)
def list_(  # noqa: PLR0917
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only tasks that no worker takes, or that do not stop.")
    ] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only tasks that wait for answers.")] = False,
    retried: Annotated[bool, typer.Option("--retried", help="Only tasks with failed attempts.")] = False,
    pool: Annotated[str | None, typer.Option(help="Only tasks of this pool.")] = None,
    most: Annotated[int, typer.Option(help="The number of tasks to show, the oldest first.", min=1, max=200)] = 50,
    as_json: Json = False,
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
    raise typer.Exit(anyio.run(list_tasks, operator_settings(), wanted, as_json))


@app.command(rich_help_panel=_OPERATOR)
def stop(task: Task, as_json: Json = False) -> None:
    """End any task at once, whatever its owner or worker; for operators, over the bus."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate_tasks import stop_task  # noqa: PLC0415

    raise typer.Exit(anyio.run(stop_task, operator_settings(), task, as_json))
