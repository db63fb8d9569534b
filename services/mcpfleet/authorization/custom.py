"""Tokens that a function of the operator's own checks: MCPFLEET_AUTHORIZER."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.authorization.rules import named
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Reason, Verified
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError

Answer: TypeAlias = Principal | tuple[Principal, float] | None
"""What an authorizer is to return; one that nobody checked may return anything."""
Authorizer: TypeAlias = Callable[[str, str, str], Awaitable[Answer]]
"""Is given a token, an endpoint's name and its URL, which the token must be for.

It returns whom the token speaks for, perhaps with the seconds that this holds, or None for nobody. Who is
returned has a subject, or else a client, which then is the subject too; one that has neither is refused.
"""


def load(target: str) -> Authorizer:
    """Import `module:function`.

    Raises:
        ConfigurationError: there is no such function.
    """
    module, _, name = target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"MCPFLEET_AUTHORIZER: cannot import {target}: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"MCPFLEET_AUTHORIZER: {target} is no function")
    authorizer: Authorizer = found
    return authorizer


class CustomVerifier:
    """Verifies tokens by the function, within a time limit (N7)."""

    def __init__(self, authorizer: Authorizer, *, timeout: float, log: FilteringBoundLogger) -> None:
        self._authorizer = authorizer
        self._timeout = timeout
        self._log = log

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:
        """Ask the function. It never admits by failing."""
        try:
            with anyio.fail_after(self._timeout):
                answer: Any = await self._authorizer(token, endpoint, resource)
        except TimeoutError:
            raise CredentialUnchecked("the authorizer took too long (MCPFLEET_AUTHORIZATION_TIMEOUT)") from None
        except Exception as error:  # its text may hold the token
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
                raise CredentialUnchecked("the authorizer returned neither a Principal, nor one with seconds, nor None")

    def trusted(self) -> None:
        """Name no key: the function decides about each token."""


def _is_time(seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except OverflowError:  # an integer beyond all floats
        return False
