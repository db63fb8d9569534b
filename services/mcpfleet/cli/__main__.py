"""The command `mcpfleet`. A service is imported only when it runs, since imports are most of a process's start."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer

from mcpfleet.cli import tasks
from mcpfleet.cli.options import Arguments, Key, Timeout, Token
from mcpfleet.cli.services import SETTINGS, serve
from mcpfleet.contracts.authorization import RevokedKind
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.run import MISCONFIGURED
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.settings_table import unknown_names

app = typer.Typer(
    name="mcpfleet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Target = Annotated[str, typer.Argument(help="The application: path/to/app.py or module:attribute.")]
Url = Annotated[str, typer.Argument(help="An endpoint, for example http://127.0.0.1:8000/mcp.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"mcpfleet {version('mcpfleet')}")
        raise typer.Exit


@app.callback()
def mcpfleet(
    version: Annotated[  # its callback has done it
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """One MCP server to its clients, however many processes serve it."""


@app.command()
def dev(  # noqa: PLR0917  # the command line's options are its parameters
    target: Target,
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
) -> None:
    """Run the whole system in one terminal: embedded NATS, SQLite, all services, edges and workers."""
    from mcpfleet.cli.dev import check_ports, develop  # noqa: PLC0415
    from mcpfleet.cli.fleet import Plan  # noqa: PLC0415

    os.environ.setdefault("MCPFLEET_LOG_FORMAT", "console")
    # No load balancer stands before a laptop's edges, so a drain need not wait for one to notice.
    os.environ.setdefault("MCPFLEET_LAME", "0")
    os.environ.setdefault("MCPFLEET_CONSOLE", "true")
    _refuse_unknown_names()
    _check_target(target)
    check_ports(port, edges)
    plan = Plan(
        target=target, edges=edges, workers=workers, port=port, nats_url=nats, store_url=store,
        settings=ProcessSettings.load(),
    )  # fmt: skip
    anyio.run(develop, plan, reload)


@app.command()
def edge() -> None:
    """Run an edge: HTTP and SSE for clients."""
    serve("edge")


@app.command()
def authorization() -> None:
    """Run authorization: it says who a caller is."""
    serve("authorization")


@app.command()
def catalog() -> None:
    """Run the catalog: it merges what workers offer."""
    serve("catalog")


app.add_typer(tasks.app, name="tasks")


@app.command()
def subscriptions() -> None:
    """Run subscriptions: it counts listen streams, and stores sessions."""
    serve("subscriptions")


@app.command()
def worker(target: Target) -> None:
    """Run a worker: it hosts an application's tools."""
    os.environ["MCPFLEET_TARGET"] = target
    serve("worker")


@app.command()
def call(  # noqa: PLR0917
    url: Url,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Arguments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    timeout: Timeout = 300.0,
    key: Key = None,
    token: Token = None,
) -> None:
    """Call a tool: show a bar while it reports progress, then its result."""
    from mcpfleet.cli.call import run_call  # noqa: PLC0415
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415

    raise typer.Exit(
        run_call(EndpointClient(url, token), tool, arguments or [], timeout=timeout, as_json=as_json, key=key)
    )


@app.command("list")
def list_(
    url: Url,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Show an endpoint's tools, resources, templates and prompts, with their descriptions."""
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.listing import run_list  # noqa: PLC0415

    raise typer.Exit(run_list(EndpointClient(url, token), timeout=timeout))


@app.command()
def withdraw(pool: Annotated[str, typer.Argument(help="The pool's name.")]) -> None:
    """Remove a pool without workers from the lists now, instead of after MCPFLEET_LINGER."""
    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import withdraw as withdraw_pool  # noqa: PLC0415
    from mcpfleet.cli.show import check_pools  # noqa: PLC0415

    check_pools([pool])
    raise typer.Exit(anyio.run(withdraw_pool, operator_settings(), pool))


@app.command()
def publish(
    uris: Annotated[list[str], typer.Argument(help="The URIs of the resources that changed, as clients read them.")],
    endpoint: Annotated[str, typer.Option(help="The endpoint's name.")] = "mcp",
) -> None:
    """Tell clients that resources changed. Only clients that watch one of them hear of it."""
    from mcpfleet.cli.dev_note import check_endpoint, operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import publish as publish_uris  # noqa: PLC0415
    from mcpfleet.cli.show import check_pools  # noqa: PLC0415

    check_pools([endpoint], "endpoint's")
    check_endpoint(endpoint)
    _check_uris(uris)
    raise typer.Exit(anyio.run(publish_uris, operator_settings(), endpoint, uris))


@app.command()
def watch(  # noqa: PLR0917
    url: Url,
    uris: Annotated[list[str] | None, typer.Argument(help="The URIs of resources to watch.")] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Watch the list of tools.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Watch the list of prompts.")] = False,
    resources: Annotated[bool, typer.Option("--resources", help="Watch the list of resources.")] = False,
    token: Token = None,
) -> None:
    """Show changes as they happen, until ^C. Without a choice, all three lists are watched."""
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.watch import WatchSelection, run_watch  # noqa: PLC0415

    _check_uris(uris or [])
    nothing = not (uris or tools or prompts or resources)
    selection = WatchSelection(
        tools=tools or nothing, prompts=prompts or nothing, resources=resources or nothing, uris=uris or ()
    )
    raise typer.Exit(run_watch(EndpointClient(url, token), selection))


@app.command()
def revoke(
    subject: Annotated[str, typer.Option(help="The subject whose tokens are revoked.")] = "",
    client: Annotated[str, typer.Option(help="The id of the client whose tokens are revoked.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant whose tokens are revoked.")] = "",
    policy: Annotated[
        bool, typer.Option("--policy", help="Revoke nobody: let edges ask again what everybody may do.")
    ] = False,
) -> None:
    """Revoke tokens everywhere at once: those that were issued until now are refused."""
    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import revoke as revoke_name  # noqa: PLC0415

    named: dict[RevokedKind, str] = {"subject": subject, "client": client, "tenant": tenant}
    chosen = [(kind, name) for kind, name in named.items() if name]
    if len(chosen) + policy != 1:
        raise ConfigurationError("give exactly one of --subject, --client, --tenant and --policy")
    kind, name = chosen[0] if chosen else ("policy", "")
    raise typer.Exit(anyio.run(revoke_name, operator_settings(), kind, name))


@app.command()
def settings(service: Annotated[str | None, typer.Argument(help="Only the settings of this service.")] = None) -> None:
    """Print each setting with its value, default and meaning."""
    from mcpfleet.cli.show import show_settings  # noqa: PLC0415

    if service is not None and service not in SETTINGS:
        raise ConfigurationError(f"there is no service {service!r}: use one of {', '.join(SETTINGS)}")
    show_settings({service: SETTINGS[service]} if service else SETTINGS)


@app.command()
def nats(pools: Annotated[str, typer.Option(help="The pools that get a NATS user, separated by commas.")] = "") -> None:
    """Print the users, permissions and settings that NATS needs, to include in nats.conf."""
    from mcpfleet.cli.show import show_nats  # noqa: PLC0415

    show_nats([pool.strip() for pool in pools.split(",") if pool.strip()], ProcessSettings.load())


@app.command()
def migrate() -> None:
    """Bring the database's tables up to date."""
    from mcpfleet.cli.services import migrate_store  # noqa: PLC0415
    from mcpfleet.store.errors import StoreError  # noqa: PLC0415
    from mcpfleet.store.settings import StoreSettings  # noqa: PLC0415

    try:
        done = anyio.run(migrate_store, StoreSettings.load())
    except StoreError as error:
        raise ConfigurationError(str(error)) from error
    for service, revision in done.items():
        typer.echo(f"{service}: now at {revision}")
    if not done:
        typer.echo("the store is up to date")


def _check_target(target: str) -> None:
    """Refuse a missing file at once: a worker would say so later."""
    path = target.partition(":")[0]
    if path.endswith(".py") and not Path(path).is_file():
        raise ConfigurationError(f"{path}: the file does not exist")


def _check_uris(uris: list[str]) -> None:
    """Refuse URIs that no resource of a fleet can have."""
    from mcpfleet.contracts.hints import BadUri, check_published  # noqa: PLC0415

    try:
        for uri in uris:
            check_published(uri)
    except BadUri as error:
        raise ConfigurationError(str(error)) from None


def _refuse_unknown_names() -> None:
    strangers = unknown_names(os.environ, SETTINGS.values())
    if strangers:
        raise ConfigurationError(*map(str, strangers))


def main() -> None:
    """Run the command line; each problem that an operator can solve is one line."""
    try:
        app()
    except (ConfigurationError, BaseExceptionGroup) as error:
        causes = leaves(error)
        if not all(isinstance(cause, ConfigurationError) for cause in causes):
            raise
        for cause in causes:
            for problem in getattr(cause, "problems", (str(cause),)):
                typer.echo(problem, err=True)
        sys.exit(MISCONFIGURED)


if __name__ == "__main__":
    main()
