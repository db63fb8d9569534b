"""Operators' commands on the bus, as the NATS user `operator`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

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

_OPERATOR: Final = "operator"
_UP_WITHIN: Final = 5.0
"""Seconds for a command, including its connection to NATS."""
_HANDED_OVER_WITHIN: Final = 2.0
"""Seconds for which a collector that does not answer may delay a command's end."""


async def withdraw(settings: ProcessSettings, pool: str, as_json: bool = False) -> int:
    """Withdraw a pool that has no workers; returns the exit code."""
    return await on_bus(settings, "withdraw", partial(_withdraw, pool=pool, as_json=as_json))


async def revoke(settings: ProcessSettings, kind: RevokedKind, name: str, as_json: bool = False) -> int:
    """Revoke the tokens that belong to a name; returns the exit code."""
    return await on_bus(settings, "revoke", partial(_revoke, kind=kind, name=name, as_json=as_json))


async def publish(settings: ProcessSettings, endpoint: str, uris: Sequence[str], as_json: bool = False) -> int:
    """Tell clients that watch resources that these have changed; returns the exit code."""
    return await on_bus(settings, "publish", partial(_publish, endpoint=endpoint, uris=uris, as_json=as_json))


async def on_bus(settings: ProcessSettings, command: str, work: Callable[[Bus], Awaitable[int]]) -> int:
    """Run an operator's command over a bus; returns the exit code.

    If the operator's environment configures traces, the command and everything that it causes is one trace.

    Args:
        settings: the bus's.
        command: the command, which names the span.
        work: does it, and returns the exit code.
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
            typer.echo("cannot connect to NATS (MCPFLEET_NATS_URL, MCPFLEET_NATS_PASSWORD)", err=True)
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(process.telemetry.close, _HANDED_OVER_WITHIN)
    return code


def _span(process: Process[ProcessSettings], command: str) -> AbstractContextManager[Span | None]:
    """Start the command's span, if traces are recorded."""
    telemetry = process.telemetry
    return telemetry.tracer.start(command, SpanKind.INTERNAL, None) if telemetry.enabled else nullcontext()


async def _withdraw(bus: Bus, pool: str, *, as_json: bool) -> int:
    try:
        answer = await CatalogClient(bus).withdraw(pool)
    except BusError as error:
        return _complain(f"{pool!r} was not withdrawn", error)
    if answer.workers:
        typer.echo(f"{pool!r} has {answer.workers} live workers: stop them first", err=True)
        return 1
    if not answer.definitions:
        typer.echo(f"nothing to withdraw: {pool!r} is not a pool of this fleet, or was withdrawn already", err=True)
        return 1
    facts = {"pool": pool, "definitions": answer.definitions}
    return _tell(f"withdrawn {answer.definitions} definitions of {pool!r}", facts, as_json=as_json)


async def _revoke(bus: Bus, kind: RevokedKind, name: str, *, as_json: bool) -> int:
    try:
        answer = await AuthorizationClient(bus).revoke(Revoke(kind=kind, name=name, id=secrets.token_hex(16)))
    except BusError as error:
        return _complain("nothing was revoked", error)
    facts = {"revocation": answer.number, "kind": kind, "name": name}
    return _tell(f"revocation {answer.number} is in force", facts, as_json=as_json)


async def _publish(bus: Bus, endpoint: str, uris: Sequence[str], *, as_json: bool) -> int:
    try:
        for uri in uris:
            subject = resource_hint_subject(endpoint, OPERATOR_TOKEN, resource_key(uri))
            bus.hint(subject, uri.encode(), current.get())
        await bus.flush(timeout=_UP_WITHIN)
    except BusError as error:
        typer.echo(f"some resources may not have been published; run the command again: {error}", err=True)
        return 1
    facts = {"endpoint": endpoint, "uris": list(uris)}
    return _tell(f"published to {endpoint}: {', '.join(uris)}", facts, as_json=as_json)


def _tell(sentence: str, facts: Mapping[str, object], *, as_json: bool) -> int:
    """Print what was done, as a sentence or as JSON; returns the exit code."""
    typer.echo(json.dumps(facts) if as_json else sentence)
    return 0


def _complain(what: str, error: BusError) -> int:
    """Print that a command failed, or that its outcome is not known; returns the exit code."""
    sentence = what if is_undone(error) else "it is not known whether the command succeeded: run it again"
    typer.echo(f"{sentence}: {error}", err=True)
    return 1
