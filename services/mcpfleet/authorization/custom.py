"""Tokens that the operator's own function checks: MCPFLEET_AUTHORIZER."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.authorization.rules import named
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Reason, Verified
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.named_object import import_named

Answer: TypeAlias = Principal | tuple[Principal, float] | None
"""The answer that an authorizer should return. Nothing enforces that, so it is checked."""
Authorizer: TypeAlias = Callable[[str, str, str], Awaitable[Answer]]
"""Takes a token, an endpoint's name, and the endpoint's URL, for which the token must be issued.

It returns the token's principal, optionally with the seconds for which that holds, or None to refuse the token. The
principal has a subject or a client; a client without a subject is its own subject. A principal with neither is refused.
"""


def load(target: str) -> Authorizer:
    """Import `module:function`.

    Raises:
        ConfigurationError: the function does not exist.
    """
    found = import_named("MCPFLEET_AUTHORIZER", target)
    if not callable(found):
        raise ConfigurationError(f"MCPFLEET_AUTHORIZER: {target} is not a function")
    authorizer: Authorizer = found
    return authorizer


class CustomVerifier:
    """Verifies tokens with the function, within a time limit (N7)."""

    def __init__(self, authorizer: Authorizer, *, timeout: float, log: FilteringBoundLogger) -> None:
        self._authorizer = authorizer
        self._timeout = timeout
        self._log = log

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:
        """Call the function. A failure never admits the caller."""
        try:
            with anyio.fail_after(self._timeout):
                answer: Any = await self._authorizer(token, endpoint, resource)
        except TimeoutError:
            raise CredentialUnchecked("the authorizer took too long (MCPFLEET_AUTHORIZATION_TIMEOUT)") from None
        except Exception as error:  # only its type is told: its text may hold the token
            self._log.error("authorizer failed", error=type(error).__name__)
            raise CredentialUnchecked(f"the authorizer failed: {type(error).__name__}") from None
        match answer:
            case None:
                raise CredentialRefused("the authorizer refused it", Reason.UNKNOWN)
            case Principal():
                return Verified(named(answer))
            case (Principal() as principal, float() | int() as seconds) if _is_time(seconds):
                return Verified(named(principal), time.time() + seconds)
            case _:
                self._log.error("authorizer failed", error="it returned neither a Principal nor None")
                raise CredentialUnchecked("the authorizer must return a Principal, (Principal, seconds) or None")

    def trusted(self) -> None:
        """Return None: the function decides about each token, and no key does."""


def _is_time(seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except OverflowError:  # an integer beyond all floats
        return False
