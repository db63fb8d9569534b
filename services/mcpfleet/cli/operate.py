"""What operators do on the bus, as the NATS user `operator`."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import anyio
import anyio.to_thread
import typer

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, is_undone
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.authorization import AuthorizationClient, Revoke, RevokedKind
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_hint_subject, resource_key
from mcpfleet.process.logs import configure
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.spans import Span, SpanKind
from mcpfleet.telemetry.trace import current

_OPERATOR = "operator"
_UP_WITHIN = 5.0
_HANDED_OVER_WITHIN = 2.0
"""Seconds that a collector which does not answer may hold a command up."""


async def withdraw(settings: ProcessSettings, pool: str) -> int:
    """End a pool that lingers without workers; returns the exit code."""
    return await on_bus(settings, "withdraw", partial(_withdraw, pool=pool))


async def revoke(settings: ProcessSettings, kind: RevokedKind, name: str) -> int:
    """End the permission of whoever a name is of; returns the exit code."""
    return await on_bus(settings, "revoke", partial(_revoke, kind=kind, name=name))


async def publish(settings: ProcessSettings, endpoint: str, uris: Sequence[str]) -> int:
    """Tell whoever watches them that resources have changed; returns the exit code."""
    return await on_bus(settings, "publish", partial(_publish, endpoint=endpoint, uris=uris))


async def on_bus(settings: ProcessSettings, command: str, work: Callable[[Bus], Awaitable[int]]) -> int:
    """Do an operator's work over a bus; returns the exit code.

    Where the operator's environment says where traces go, what the command causes is one of them, and recorded.

    Args:
        settings: of the bus.
        command: what the operator said; the name of the span.
        work: returns the exit code.
    """
    configure("console", "warning", {"service": _OPERATOR})
    process = Process(_OPERATOR, settings)
    bus = bus_of(process, _OPERATOR)
    code = 1
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        with anyio.move_on_after(_UP_WITHIN), _span(process, command) as span:
            await bus.wait_up()
            code = await work(bus)
            if code and span is not None:
                span.fail("not_done")
        if not bus.is_up:
            typer.echo("no link to NATS (MCPFLEET_NATS_URL, MCPFLEET_NATS_PASSWORD)", err=True)
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(process.telemetry.close, _HANDED_OVER_WITHIN)
    return code


def _span(process: Process[ProcessSettings], command: str) -> AbstractContextManager[Span | None]:
    """What the command causes is a part of it, where anybody records that."""
    telemetry = process.telemetry
    return telemetry.tracer.start(command, SpanKind.INTERNAL, None) if telemetry.enabled else nullcontext()


async def _withdraw(bus: Bus, pool: str) -> int:
    try:
        answer = await CatalogClient(bus).withdraw(pool)
    except BusError as error:
        doubt = "" if is_undone(error) else " for certain, so do it again"
        typer.echo(f"the catalog did not withdraw {pool!r}{doubt}: {error}", err=True)
        return 1
    if answer.workers:
        typer.echo(f"{pool!r} has {answer.workers} live workers: stop them first", err=True)
        return 1
    if not answer.definitions:
        typer.echo(f"nothing to withdraw: {pool!r} is not a pool of this fleet, or was withdrawn before", err=True)
        return 1
    typer.echo(f"{answer.definitions} definitions of {pool!r} are withdrawn")
    return 0


async def _revoke(bus: Bus, kind: RevokedKind, name: str) -> int:
    try:
        answer = await AuthorizationClient(bus).revoke(Revoke(kind=kind, name=name, id=secrets.token_hex(16)))
    except BusError as error:
        doubt = "" if is_undone(error) else " for certain, so do it again"
        typer.echo(f"authorization did not revoke anything{doubt}: {error}", err=True)
        return 1
    typer.echo(f"revocation {answer.number} stands")
    return 0


async def _publish(bus: Bus, endpoint: str, uris: Sequence[str]) -> int:
    try:
        for uri in uris:
            subject = resource_hint_subject(endpoint, OPERATOR_TOKEN, resource_key(uri))
            bus.hint(subject, uri.encode(), current.get())
        await bus.flush(timeout=_UP_WITHIN)
    except BusError as error:
        typer.echo(f"not everything was published for certain, so do it again: {error}", err=True)
        return 1
    typer.echo(f"published to {endpoint}: {', '.join(uris)}")
    return 0
