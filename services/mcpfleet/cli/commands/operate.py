"""The commands of an operator: on the bus, and on settings, users and tables."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mcpfleet.cli.options import Json, check_uris
from mcpfleet.process.errors import ConfigurationError


def withdraw(pool: Annotated[str, typer.Argument(help="The pool's name.")], as_json: Json = False) -> None:
    """Remove a pool without workers from the lists now, instead of after MCPFLEET_LINGER."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import withdraw as withdraw_pool  # noqa: PLC0415
    from mcpfleet.cli.show import check_pools  # noqa: PLC0415

    check_pools([pool])
    raise typer.Exit(anyio.run(withdraw_pool, operator_settings(), pool, as_json))


def publish(
    uris: Annotated[list[str], typer.Argument(help="The URIs of the resources that changed, as clients read them.")],
    endpoint: Annotated[str, typer.Option(help="The endpoint's name.")] = "mcp",
    as_json: Json = False,
) -> None:
    """Tell clients that resources changed. Only clients that watch one of them hear of it."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import check_endpoint, operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import publish as publish_uris  # noqa: PLC0415
    from mcpfleet.cli.show import check_pools  # noqa: PLC0415

    check_pools([endpoint], "endpoint's")
    check_endpoint(endpoint)
    check_uris(uris)
    raise typer.Exit(anyio.run(publish_uris, operator_settings(), endpoint, uris, as_json))


def revoke(
    subject: Annotated[str, typer.Option(help="The subject whose tokens are revoked.")] = "",
    client: Annotated[str, typer.Option(help="The id of the client whose tokens are revoked.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant whose tokens are revoked.")] = "",
    policy: Annotated[
        bool, typer.Option("--policy", help="Revoke nobody: let edges ask again what everybody may do.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Revoke tokens everywhere at once: those that were issued until now are refused."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.dev_note import operator_settings  # noqa: PLC0415
    from mcpfleet.cli.operate import revoke as revoke_name  # noqa: PLC0415
    from mcpfleet.contracts.authorization import RevokedKind  # noqa: PLC0415

    named: dict[RevokedKind, str] = {"subject": subject, "client": client, "tenant": tenant}
    chosen = [(kind, name) for kind, name in named.items() if name]
    if len(chosen) + policy != 1:
        raise ConfigurationError("give exactly one of --subject, --client, --tenant and --policy")
    kind, name = chosen[0] if chosen else ("policy", "")
    raise typer.Exit(anyio.run(revoke_name, operator_settings(), kind, name, as_json))


def settings(
    service: Annotated[str | None, typer.Argument(help="Only the settings of this service.")] = None,
    as_json: Json = False,
) -> None:
    """Print each setting with its value, default and meaning."""
    from mcpfleet.cli.services import SETTINGS  # noqa: PLC0415
    from mcpfleet.cli.show import show_settings  # noqa: PLC0415

    if service is not None and service not in SETTINGS:
        raise ConfigurationError(f"there is no service {service!r}: use one of {', '.join(SETTINGS)}")
    show_settings({service: SETTINGS[service]} if service else SETTINGS, as_json=as_json)


def nats(pools: Annotated[str, typer.Option(help="The pools that get a NATS user, separated by commas.")] = "") -> None:
    """Print the users, permissions and settings that NATS needs, to include in nats.conf."""
    from mcpfleet.cli.show import show_nats  # noqa: PLC0415
    from mcpfleet.process.settings import ProcessSettings  # noqa: PLC0415

    show_nats([pool.strip() for pool in pools.split(",") if pool.strip()], ProcessSettings.load())


def migrate(as_json: Json = False) -> None:
    """Bring the database's tables up to date."""
    import anyio  # noqa: PLC0415

    from mcpfleet.cli.services import migrate_store  # noqa: PLC0415
    from mcpfleet.store.errors import StoreError  # noqa: PLC0415
    from mcpfleet.store.settings import StoreSettings  # noqa: PLC0415

    try:
        done = anyio.run(migrate_store, StoreSettings.load())
    except StoreError as error:
        raise ConfigurationError(str(error)) from error
    if as_json:
        typer.echo(json.dumps(done))
        return
    for service, revision in done.items():
        typer.echo(f"{service}: now at {revision}")
    if not done:
        typer.echo("the store is up to date")
