"""The commands for somebody who writes an application: `mcpfleet dev`, `check` and `messages`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcpfleet.cli.options import Target
from mcpfleet.cli.sources import Isolation, Only, Python, Targets, chosen_target, source_target
from mcpfleet.process.errors import ConfigurationError

if TYPE_CHECKING:  # it costs start-up time
    from mcpfleet.cli.child import Launch


def dev(  # noqa: PLR0917  # the command line's options are its parameters
    ctx: typer.Context,
    targets: Targets = None,
    port: Annotated[
        int, typer.Option(help="The first edge's port; the other edges take the next ones. 0 takes free ports.", min=0)
    ] = 8000,
    edges: Annotated[int, typer.Option(help="The number of edges.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="The number of workers.", min=1)] = 1,
    reload: Annotated[bool, typer.Option(help="Restart the workers when a Python file changes.")] = True,
    store: Annotated[str | None, typer.Option(help="The URL of a database, instead of an embedded SQLite.")] = None,
    nats: Annotated[
        str | None, typer.Option(help="The URL of a NATS server without users, instead of an embedded one.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address that the edges listen on.")] = "127.0.0.1",
    only: Only = None,
    isolation: Isolation = None,
    python: Python = None,
    note: Annotated[bool, typer.Option(hidden=True, help="Let operators' commands of this folder find it.")] = True,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True, help="End when the parent does.")] = False,
) -> None:
    """Run the whole system in one terminal: embedded NATS, SQLite, all services, edges and workers."""
    import anyio  # noqa: PLC0415

    os.environ.setdefault("MCPFLEET_LOG_FORMAT", "console")
    os.environ.setdefault("MCPFLEET_LOG_LEVEL", "warning")
    # No load balancer stands before a laptop's edges, so a drain need not wait for one to notice.
    os.environ.setdefault("MCPFLEET_LAME", "0")
    os.environ.setdefault("MCPFLEET_CONSOLE", "true")
    target = chosen_target(ctx, targets, only=only, isolation=isolation, python=python)

    from mcpfleet.cli.child import die_with_parent  # noqa: PLC0415
    from mcpfleet.cli.dev import Development, check_ports, console_port, launching  # noqa: PLC0415
    from mcpfleet.cli.first_worker import importing  # noqa: PLC0415
    from mcpfleet.cli.fleet import Plan  # noqa: PLC0415
    from mcpfleet.process.settings import ProcessSettings  # noqa: PLC0415

    if with_parent:
        die_with_parent()
    _refuse_unknown_names()
    check_ports(port, edges, host)

    async def develop(launch: Launch) -> None:
        async with importing(target, launch) as first:
            await first.hear()
            if first.report.endpoints is not None:
                os.environ.setdefault("MCPFLEET_ENDPOINTS", first.report.endpoints)
            own = {"edge 1": {"MCPFLEET_ADMIN_BIND": f"127.0.0.1:{console_port(port)}"}}
            plan = Plan(
                target=target, edges=edges, workers=workers, host=host, port=port, nats_url=nats, store_url=store,
                own=own, first=first, launch=launch, settings=ProcessSettings.load(),
            )  # fmt: skip
            await Development(plan, reload=reload, note=note).run()

    with launching() as launch:
        anyio.run(develop, launch)


def check(  # noqa: PLR0917  # the command line's options are its parameters
    ctx: typer.Context,
    targets: Targets = None,
    only: Only = None,
    python: Python = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    within: Annotated[
        float, typer.Option(help="Seconds that the import may take, or the start of each server.", min=0.1)
    ] = 60.0,
) -> None:
    """Check an application, or MCP servers that exist: show what clients would see. Nothing is called."""
    from mcpfleet.cli.check import run_check  # noqa: PLC0415

    target = chosen_target(ctx, targets, only=only, python=python)
    if (sources := source_target(target)) is not None:
        from mcpfleet.cli.check_sources import check_sources  # noqa: PLC0415

        raise typer.Exit(check_sources(sources, as_json=as_json, within=within))
    raise typer.Exit(run_check(target, as_json=as_json, within=within))


def messages(
    target: Target,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write, such as locale/shop.pot.", metavar="FILE")
    ] = None,
) -> None:
    """Write the texts of an application that can be translated, as a gettext template (.pot)."""
    from mcpfleet.cli.messages import run_messages  # noqa: PLC0415

    raise typer.Exit(run_messages(target, output))


def _refuse_unknown_names() -> None:
    from mcpfleet.cli.services import SETTINGS  # noqa: PLC0415
    from mcpfleet.process.settings_table import unknown_names  # noqa: PLC0415

    strangers = unknown_names(os.environ, SETTINGS.values())
    if strangers:
        raise ConfigurationError(*map(str, strangers))
