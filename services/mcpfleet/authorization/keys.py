"""The issuer's public keys: fetched again in time and when one is unknown, and used on while the issuer is away."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import jwt
from structlog.typing import FilteringBoundLogger

from mcpfleet.authorization.rules import NotKnown, Reason, Refused
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.upstream import Upstream
from mcpfleet.contracts.access import is_secure

_MOST_KEYS: Final = 100
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key that a family of algorithms needs."""
_RETRY_SHARE: Final = 10
"""Keys that could not be fetched are fetched again after this part of the interval."""


@dataclass(frozen=True, slots=True)
class _Key:
    id: str | None
    algorithm: str | None
    """The only one that it signs by; none where the set does not say."""
    kind: str | None
    public: Any

    def signs_by(self, algorithm: str) -> bool:
        return self.algorithm == algorithm if self.algorithm else self.kind == _KINDS.get(algorithm[:2])


class Keys:
    """A key set. A known key never waits for the issuer."""

    def __init__(self, upstream: Upstream, settings: AuthorizationSettings, *, log: FilteringBoundLogger) -> None:
        self._upstream = upstream
        self._settings = settings
        self._log = log
        self._url = settings.jwks_url
        self._keys: tuple[_Key, ...] = ()
        self._began = time.monotonic()
        self._fetched = -math.inf
        self._tried = -math.inf
        self._fetching = anyio.Lock()

    def age(self) -> float:
        """Seconds since the keys were fetched; since the start, where they never were."""
        return time.monotonic() - max(self._fetched, self._began)

    async def run(self) -> None:
        """Fetch the keys, and again at intervals, until cancelled."""
        while True:
            is_new = await self._fetch_if(lambda: time.monotonic() - self._fetched >= self._settings.jwks_lasts)
            await anyio.sleep(self._settings.jwks_lasts / (1 if is_new else _RETRY_SHARE))

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """The key that a token says it is signed by.

        Raises:
            Refused: the issuer has no such key.
            NotKnown: the issuer's keys could not be fetched, or were fetched too long ago.
        """
        key = self._look(kid, algorithm)
        if key is None:
            # Asked for by whoever sends us a token, so not more often than once in a while.
            since = self._tried
            await self._fetch_if(lambda: self._tried == since and self._is_time())
            key = self._look(kid, algorithm)
        if time.monotonic() - self._fetched > self._settings.jwks_stale:
            raise NotKnown("the issuer's keys cannot be fetched (MCPFLEET_ISSUER, MCPFLEET_JWKS_URL)")
        if key is None:
            raise Refused("it is signed by a key that the issuer does not have", Reason.KEY)
        return key.public

    def _is_time(self) -> bool:
        return time.monotonic() - self._tried >= self._settings.jwks_cooldown

    def _look(self, kid: str | None, algorithm: str) -> _Key | None:
        """Find a key by its id; one without is found only where there is but one that fits."""
        fitting = [key for key in self._keys if key.signs_by(algorithm) and kid in (None, key.id)]
        return fitting[0] if len(fitting) == 1 or (kid is not None and fitting) else None

    async def _fetch_if(self, wanted: Callable[[], bool]) -> bool:
        """Fetch the keys, one at a time; false where they are not new."""
        async with self._fetching:
            if not wanted():
                return False
            self._tried = time.monotonic()
            try:
                keys = tuple(_read(await self._upstream.get(await self._find_url())))
            except NotKnown as error:
                self._log.warning("no keys from the issuer", error=str(error), known=len(self._keys))
                return False
            self._keys, self._fetched = keys, time.monotonic()
            return True

    async def _find_url(self) -> str:
        """Where the keys are, by the issuer's metadata if no setting says so."""
        if self._url:
            return self._url
        problem = NotKnown(f"no metadata of {self._settings.issuer} (MCPFLEET_ISSUER)")
        for url in metadata_urls(self._settings.issuer):
            try:
                metadata = await self._upstream.get(url)
            except NotKnown as error:
                problem = error
                continue
            found = metadata.get("jwks_uri")
            if str(metadata.get("issuer", "")).rstrip("/") != self._settings.issuer.rstrip("/"):
                problem = NotKnown(f"{url} is the metadata of another issuer (MCPFLEET_ISSUER)")
            elif isinstance(found, str) and is_secure(found):
                self._url = found
                return found
            else:
                problem = NotKnown(f"{url} names no keys that can be trusted (jwks_uri)")
        raise problem


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be: as RFC 8414 says, and as OpenID Connect does."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return tuple(
        dict.fromkeys(
            (
                f"{origin}/.well-known/oauth-authorization-server{path}",
                f"{origin}/.well-known/openid-configuration{path}",
                f"{origin}{path}/.well-known/openid-configuration",
            )
        )
    )


def _read(body: dict[str, Any]) -> Iterator[_Key]:
    """Read the keys for signatures that we know; others are nobody's mistake."""
    listed = body.get("keys")
    for entry in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(entry)
        except jwt.PyJWTError:
            continue
        yield _Key(key.key_id, entry.get("alg"), key.key_type, key.key)
