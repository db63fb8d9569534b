"""Authorization's messages: a credential goes in, a principal with an expiry comes out."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_serializer

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.exchange import Exchange, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.contracts.principal import Principal


class Admit(Message):
    """An edge asks whether a caller may enter an endpoint."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    credential: SecretStr | None = None
    """The bearer token; a process prints it as stars."""

    @field_serializer("credential", when_used="json-unless-none")
    def _reveal(self, credential: SecretStr) -> str:
        """Let the token cross the bus: to authorization, and to nobody else (invariant 9)."""
        return credential.get_secret_value()


class Admitted(Message):
    """The verdict, and how long an edge may go by it."""

    principal: Principal | None = None
    """None where the credential was refused."""
    lasts: float = Field(ge=0)
    """Seconds from the asking that the verdict may be cached: time left, so that no two clocks are compared."""
    reason: str | None = None
    """Why the credential was refused, for the operator's log; never for the client."""


ADMIT = Exchange("authorization.admit", Admit, Admitted, asked_by="edge", repeat=True)


class AuthorizationClient:
    """What edges ask of authorization; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def admit(self, request: Admit) -> Admitted:
        """Ask who the caller is."""
        return await ask(self._bus, ADMIT, request, timeout=self._timeout)
