"""Seals by an object of the operator's own (MCPFLEET_SEALER), within bounds, once it has proven itself (X73)."""

from __future__ import annotations

import base64
import binascii
import inspect
import os
import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import anyio
from pydantic_core import from_json, to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.sealing import NotOurs, OwnSealer, Unsealable
from mcpfleet.edge.protocol.sealer import Sealer
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.named_object import import_named

WITHIN: Final = 0.25
"""Seconds that one call of the object may take."""
AT_ONCE: Final = 256
"""Calls of the object at once; one more is refused."""
_SETTING: Final = "MCPFLEET_SEALER"
_VERSION: Final = b"\x02"
_PROBE_BYTES: Final = 32

T = TypeVar("T")


class SealerFailed(Exception):
    """Raised when the object raised what it may not, or returned no bytes: a fault of ours, not of a client."""


def load(target: str) -> OwnSealer:
    """Import `module:factory`, and make the object.

    Raises:
        ConfigurationError: there is no such function, it fails, or its object has no async `seal` and `open`.
    """
    factory = import_named(_SETTING, target)
    try:
        made = factory()
    except Exception as error:
        raise ConfigurationError(f"{_SETTING}: {target}() raised {type(error).__name__}: {error}") from error
    for method in ("seal", "open"):
        if not inspect.iscoroutinefunction(getattr(made, method, None)):
            why = f"{target}() must return an object with `async def {method}(self, …, associated)`"
            raise ConfigurationError(f"{_SETTING}: {why}")
    own: OwnSealer = made
    return own


class BoundedSealer(Sealer):
    """Seals by the operator's object: each call has a time limit, and so many run at once."""

    def __init__(self, own: OwnSealer, *, log: FilteringBoundLogger) -> None:
        self._own = own
        self._log = log
        self._running = 0

    async def check(self) -> None:
        """Check that a round trip works, and that altered text and other associated data do not open.

        Raises:
            ConfigurationError: one of these is not so.
        """
        plain, associated = os.urandom(_PROBE_BYTES), os.urandom(_PROBE_BYTES)
        try:
            sealed = await self._bounded(self._own.seal(plain, associated))
            opened = await self._bounded(self._own.open(sealed, associated))
        except (Unsealable, NotOurs, SealerFailed) as error:
            raise ConfigurationError(f"{_SETTING}: a round trip failed: {type(error).__name__}: {error}") from error
        if opened != plain:
            raise ConfigurationError(f"{_SETTING}: `open` did not return what `seal` was given")
        if plain in sealed:
            raise ConfigurationError(f"{_SETTING}: `seal` does not hide what it is given")
        for at in (0, len(sealed) // 2, len(sealed) - 1):
            altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
            await self._must_not_open(altered, associated, "altered bytes")
        await self._must_not_open(sealed, associated[:-1] + bytes([associated[-1] ^ 1]), "other associated bytes")

    async def _must_not_open(self, sealed: bytes, associated: bytes, what: str) -> None:
        try:
            await self._bounded(self._own.open(sealed, associated))
        except NotOurs:
            return
        except (Unsealable, SealerFailed) as error:
            why = f"`open` of {what} must raise NotOurs, and raised {type(error).__name__}: {error}"
            raise ConfigurationError(f"{_SETTING}: {why}") from error
        raise ConfigurationError(f"{_SETTING}: `open` took {what}: it must raise NotOurs")

    async def watch(self, interval: float) -> None:
        """Wait: the object sees to its own keys."""
        del interval
        await anyio.sleep_forever()

    async def seal(self, content: Any, *, bound: bytes, lasts: float) -> str:
        """Seal a JSON value for `lasts` seconds; it opens with the same `bound` bytes only.

        Raises:
            Unsealable: the object says so, takes too long, or has too much to do.
            SealerFailed: the object failed.
        """
        plain = to_json({"until": time.time() + lasts, "content": content})
        sealed = await self._told(self._own.seal(plain, bound))
        return base64.urlsafe_b64encode(_VERSION + sealed).rstrip(b"=").decode()

    async def open(self, text: str, *, bound: bytes) -> Any:
        """Open a sealed text.

        Raises:
            NotOurs: the object says so, or its time is over.
            Unsealable: the object says so, takes too long, or has too much to do.
            SealerFailed: the object failed.
        """
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise NotOurs from None
        if sealed[:1] != _VERSION:
            raise NotOurs
        plain = await self._told(self._own.open(sealed[1:], bound))
        try:
            value = from_json(plain)
            until, content = value["until"], value["content"]
        except (ValueError, LookupError, TypeError):
            raise SealerFailed("`open` returned what was never sealed") from None
        if until < time.time():
            raise NotOurs
        return content

    async def _told(self, call: Awaitable[bytes]) -> bytes:
        """Await a call, and log why it came to nothing."""
        try:
            return await self._bounded(call)
        except Unsealable as error:
            self._log.error("text not sealed", setting=_SETTING, error=str(error))
            raise
        except SealerFailed as error:
            self._log.error("sealer failed", setting=_SETTING, error=str(error))
            raise

    async def _bounded(self, call: Awaitable[bytes]) -> bytes:
        if self._running >= AT_ONCE:
            if inspect.iscoroutine(call):
                call.close()
            raise Unsealable(f"{AT_ONCE} calls run already")
        self._running += 1
        try:
            with anyio.fail_after(WITHIN):
                found: object = await call
        except TimeoutError:
            raise Unsealable(f"no answer within {WITHIN * 1000:.0f} ms") from None
        except (NotOurs, Unsealable):
            raise
        except Exception as error:
            raise SealerFailed(f"{type(error).__name__}: {error}") from error
        finally:
            self._running -= 1
        if not isinstance(found, bytes) or not found:
            raise SealerFailed(f"returned {type(found).__name__}, and must return bytes")
        return found
