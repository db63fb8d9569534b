"""Seals texts that clients carry from one request to the next: any edge can read them, and nobody can change them.

Request state (M52) and cursors (M47). The keys are a secret file that all edges share: one key a line, the newest
first, each 32 bytes as Base64. It is read again while it changes, so that keys rotate without a restart. An edge opens
with every key. It seals with the newest key that it has known for so long that the others know it too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic_core import from_json, to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.keys import KEY_BYTES
from mcpfleet.process.logs import reporting

_NAME_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_VERSION: Final = b"\x01"
_MOST_KEYS: Final = 16
_SETTING: Final = "MCPFLEET_SEAL_KEYS"


@dataclass(frozen=True, slots=True)
class _Key:
    name: bytes
    cipher: AESGCM
    since: float
    """When this edge first saw it (monotonic seconds)."""


class Sealer(Protocol):
    """Seals JSON values, and opens what was sealed."""

    async def check(self) -> None:
        """Check before the edge serves that sealing works.

        Raises:
            ConfigurationError: it does not.
        """

    async def watch(self, interval: float) -> None:
        """Look at every interval for what has changed, until cancelled."""

    async def seal(self, content: Any, *, bound: bytes, lasts: float) -> str:
        """Seal a JSON value for `lasts` seconds; it opens with the same `bound` bytes only.

        Raises:
            Unsealable: it cannot be done now.
        """

    async def open(self, text: str, *, bound: bytes) -> Any:
        """Open a sealed text.

        Raises:
            NotOurs: it was not sealed by this fleet and for this use, or its time is over.
            Unsealable: it cannot be done now.
        """


class KeySealer(Sealer):
    """Seals with the keys of a file."""

    def __init__(self, path: str, *, adopted_after: float, log: FilteringBoundLogger) -> None:
        """Read the keys.

        Args:
            path: the file; empty where there is none, so that nothing can be sealed.
            adopted_after: seconds for which a new key is known before it seals (the other edges read it meanwhile).
            log: hears of a file that cannot be read any more.

        Raises:
            ConfigurationError: the file cannot be read, or holds no keys.
        """
        self.path = path
        self._adopted_after = adopted_after
        self._log = log
        self._text = ""
        self._keys: tuple[_Key, ...] = ()
        if path:
            self._take(_read(path), since=time.monotonic() - adopted_after)
        else:
            log.warning(
                "seal keys missing", effect="questions to clients and pages of lists end with 503", setting=_SETTING
            )

    async def check(self) -> None:
        """Check nothing more: the keys are read already."""

    async def watch(self, interval: float) -> None:
        """Read the file again at every interval, until cancelled; where that fails the known keys stay."""
        while self.path:
            await anyio.sleep(interval)
            with reporting(self._log, "seal keys"):
                await self._read_again()
        await anyio.sleep_forever()

    async def _read_again(self) -> None:
        try:
            text = await anyio.to_thread.run_sync(_read, self.path)
            if text != self._text:
                self._take(text, since=time.monotonic())
                self._log.info("seal keys read", keys=len(self._keys), setting=_SETTING)
        except ConfigurationError as error:
            self._log.error("seal keys not read", error=str(error), setting=_SETTING)

    async def seal(self, content: Any, *, bound: bytes, lasts: float) -> str:
        """Seal a JSON value for `lasts` seconds; it opens with the same `bound` bytes only.

        Raises:
            Unsealable: there is no key.
        """
        now = time.monotonic()
        known = [key for key in self._keys if now - key.since >= self._adopted_after]
        key = next(iter(known or self._keys), None)
        if key is None:
            self._log.error("text not sealed", setting=_SETTING)
            raise Unsealable(f"{_SETTING} is not set")
        nonce = os.urandom(_NONCE_BYTES)
        text = to_json({"until": time.time() + lasts, "content": content})
        sealed = _VERSION + key.name + nonce + key.cipher.encrypt(nonce, text, bound)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    async def open(self, text: str, *, bound: bytes) -> Any:
        """Open a sealed text; raises `NotOurs`."""
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise NotOurs from None
        if sealed[:1] != _VERSION:
            raise NotOurs
        name, rest = sealed[1 : 1 + _NAME_BYTES], sealed[1 + _NAME_BYTES :]
        nonce, secret = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        for key in self._keys:
            if key.name != name:
                continue
            try:
                value = from_json(key.cipher.decrypt(nonce, secret, bound))
            except (InvalidTag, ValueError):
                continue
            if value["until"] < time.time():
                raise NotOurs
            return value["content"]
        raise NotOurs

    def _take(self, text: str, *, since: float) -> None:
        """Take the file's keys; known keys keep their age."""
        ages = {key.name: key.since for key in self._keys}
        keys = [_key(line, number) for number, line in enumerate(_lines(text), start=1)]
        if not 0 < len(keys) <= _MOST_KEYS:
            raise ConfigurationError(f"{_SETTING}: {self.path} must hold 1 to {_MOST_KEYS} keys, one a line")
        self._keys = tuple(_Key(name, AESGCM(raw), ages.get(name, since)) for name, raw in keys)
        self._text = text


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigurationError(f"{_SETTING}: cannot read {path}: {reason}") from None


def _lines(text: str) -> Iterable[str]:
    return (line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _key(line: str, number: int) -> tuple[bytes, bytes]:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ConfigurationError(
            f"{_SETTING}: key {number} is not {KEY_BYTES} bytes as Base64 (openssl rand -base64 32)"
        )
    return hashlib.sha256(raw).digest()[:_NAME_BYTES], raw
