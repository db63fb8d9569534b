"""Wires authorization, and runs it: `python -m mcpfleet.authorization`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from mcpfleet.authorization.actor import AuthorizationActor
from mcpfleet.authorization.repository import RevocationRepository
from mcpfleet.authorization.revocations import KnownRevocations
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import Verifier
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of, run_service
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.stats import Role
from mcpfleet.process.run import Process, Service, run
from mcpfleet.store.engine import store_of
from mcpfleet.store.errors import OUTAGES
from mcpfleet.telemetry.instruments import AuthorizationInstruments

if TYPE_CHECKING:
    from mcpfleet.authorization.policy import OperatorPolicy


async def serve(process: Process[AuthorizationSettings]) -> None:
    """Answer until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[AuthorizationSettings], bus: Bus) -> None:
    """Do the same over a given bus."""
    settings = process.settings
    instruments = AuthorizationInstruments(process.telemetry.metrics)
    async with (
        store_of(settings, process.name, departure=process.departure) as store,
        _verifier(process, instruments) as verifier,
    ):
        repository = RevocationRepository(store)
        revocations = KnownRevocations(repository, bus, process, verifier)
        policy = _policy(settings.policy)
        answers = AuthorizationActor(
            process, store, repository, revocations, verifier=verifier, policy=policy, instruments=instruments
        )
        beside = partial(serve_console, process, bus, Role.AUTHORIZATION)
        concurrency = settings.authorization_concurrency
        await run_service(
            process, bus, answers, loop=revocations.run, concurrency=concurrency, outage=OUTAGES, beside=beside
        )


def _policy(target: str) -> OperatorPolicy | None:
    """Load the operator's policy, where there is one; its code is imported only then."""
    if not target:
        return None
    from mcpfleet.authorization.policy import load  # noqa: PLC0415

    return load(target)


@asynccontextmanager
async def _verifier(
    process: Process[AuthorizationSettings], instruments: AuthorizationInstruments
) -> AsyncIterator[Verifier | None]:
    """Open the verifier of the mode that the settings name; it is imported only then, since imports cost time."""
    settings, timeout = process.settings, process.settings.authorization_timeout
    match settings.authorization:
        case "none":
            yield None
        case "static":
            from mcpfleet.authorization.static import StaticVerifier  # noqa: PLC0415

            yield StaticVerifier(settings.tokens.get_secret_value())
        case "custom":
            from mcpfleet.authorization.custom import CustomVerifier, load  # noqa: PLC0415

            yield CustomVerifier(load(settings.authorizer), timeout=timeout, log=process.log)
        case "introspection":
            from mcpfleet.authorization.issuer import IntrospectionVerifier, issuer_client  # noqa: PLC0415

            async with issuer_client(timeout) as issuer:
                yield IntrospectionVerifier(issuer, settings)
        case "jwt":
            from mcpfleet.authorization.issuer import issuer_client  # noqa: PLC0415
            from mcpfleet.authorization.keys import Keys  # noqa: PLC0415
            from mcpfleet.authorization.signed_jwt import JwtVerifier  # noqa: PLC0415

            async with issuer_client(timeout) as issuer, anyio.create_task_group() as tasks:
                keys = Keys(issuer, settings, log=process.log)
                instruments.keys_age.observe(keys.age)
                tasks.start_soon(keys.run)
                yield JwtVerifier(keys, settings)
                tasks.cancel_scope.cancel()


SERVICE: Final = Service("authorization", serve, AuthorizationSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
