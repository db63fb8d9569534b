"""The issuer's public keys: fetched again in time and when one is unknown, and used on while the issuer is away."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from structlog.typing import FilteringBoundLogger

from mcpfleet.authorization.issuer import IssuerClient
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Reason, Trusted
from mcpfleet.contracts.access import is_secure
from mcpfleet.contracts.manifest import digest_of

_MOST_KEYS: Final = 100
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key that a family of algorithms needs."""
_COMPLAINS_EVERY: Final = 60.0
"""Seconds between two lines about keys that cannot be fetched."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One of the issuer's public keys."""

    id: str | None
    algorithm: str | None
    """The only one that it signs by; none where the set does not say."""
    kind: str | None
    public: Any
    name: str
    """A digest of the key itself, its id and its algorithm: another key under the same id has another name."""

    def signs_by(self, algorithm: str) -> bool:
        """Whether it can have signed by an algorithm."""
        return self.algorithm == algorithm if self.algorithm else self.kind == _KINDS.get(algorithm[:2])


class Keys:
    """A key set. A known key never waits for the issuer."""

    def __init__(self, upstream: IssuerClient, settings: AuthorizationSettings, *, log: FilteringBoundLogger) -> None:
        self._upstream = upstream
        self._settings = settings
        self._log = log
        self._url = settings.jwks_url
        self._keys: tuple[PublicKey, ...] = ()
        self._began = time.monotonic()
        self._fetched = -math.inf
        self._asked = -math.inf
        """When an unknown key was last fetched for."""
        self._fetching: anyio.Event | None = anyio.Event()
        """Set at the end of a fetch for an unknown key; none where nobody may wait for one. The first is for all."""
        self._is_wanted = anyio.Event()
        self._complained = -math.inf

    def age(self) -> float:
        """Seconds since the keys were fetched; since the start, where they never were."""
        return time.monotonic() - max(self._fetched, self._began)

    def trusted(self) -> Trusted | None:
        """The keys that were fetched last; none before the first."""
        if self._fetched == -math.inf:
            return None
        return Trusted(tuple(key.name for key in self._keys), time.monotonic() - self._fetched)

    async def run(self) -> None:
        """Fetch the keys, and again at intervals or when an unknown one is asked for, until cancelled."""
        while True:
            began, waited_for = time.monotonic(), self._fetching
            self._is_wanted = anyio.Event()
            try:
                await self._fetch()
            finally:
                if waited_for is not None:
                    self._fetching = None
                    waited_for.set()
            with anyio.move_on_after(began + self._settings.jwks_lasts - time.monotonic()):
                await self._is_wanted.wait()

    async def find(self, kid: str | None, algorithm: str) -> PublicKey:
        """The key that a token says it is signed by.

        Raises:
            CredentialRefused: the issuer has no such key.
            CredentialUnchecked: the issuer's keys could not be fetched, or were fetched too long ago.
        """
        key = self._look(kid, algorithm)
        if key is None:
            await self._wait_fetched()
            key = self._look(kid, algorithm)
        if time.monotonic() - self._fetched > self._settings.jwks_stale:
            raise CredentialUnchecked("the issuer's keys cannot be fetched (MCPFLEET_ISSUER, MCPFLEET_JWKS_URL)")
        if key is None:
            raise CredentialRefused("it is signed by a key that the issuer does not have", Reason.KEY)
        return key

    def _look(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Find a key by its id; one without is found only where there is but one that fits."""
        fitting = [key for key in self._keys if key.signs_by(algorithm) and kid in (None, key.id)]
        return fitting[0] if len(fitting) == 1 or (kid is not None and fitting) else None

    async def _wait_fetched(self) -> None:
        """Have the keys fetched anew, unless they were for an unknown key a while ago: whoever invents one asks.

        The fetch is nobody's who waits for it: one that leaves does not end it.
        """
        now = time.monotonic()
        if self._fetching is None:
            if now - self._asked < self._settings.jwks_cooldown:
                return
            self._asked = now
            self._fetching = anyio.Event()
            self._is_wanted.set()
        with anyio.move_on_after(2 * self._settings.authorization_timeout):  # the fetch before it may be under way
            await self._fetching.wait()

    async def _fetch(self) -> None:
        try:
            body = await self._upstream.get(await self._find_url())
            keys = tuple(_read(body))
        except CredentialUnchecked as error:
            now = time.monotonic()
            if now - self._complained >= _COMPLAINS_EVERY:
                self._complained = now
                self._log.warning("no keys from the issuer", error=str(error), known=len(self._keys))
            return
        self._keys, self._fetched = keys, time.monotonic()
        self._complained = -math.inf

    async def _find_url(self) -> str:
        """Where the keys are, by the issuer's metadata if no setting says so."""
        if self._url:
            return self._url
        problem = CredentialUnchecked(f"no metadata of {self._settings.issuer} (MCPFLEET_ISSUER)")
        for url in metadata_urls(self._settings.issuer):
            try:
                metadata = await self._upstream.get(url)
            except CredentialUnchecked as error:
                problem = error
                continue
            found = metadata.get("jwks_uri")
            if str(metadata.get("issuer", "")).rstrip("/") != self._settings.issuer.rstrip("/"):
                problem = CredentialUnchecked(f"{url} is the metadata of another issuer (MCPFLEET_ISSUER)")
            elif isinstance(found, str) and is_secure(found):
                self._url = found
                return found
            else:
                problem = CredentialUnchecked(f"{url} names no keys that can be trusted (jwks_uri)")
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


def _read(body: dict[str, Any]) -> Iterator[PublicKey]:
    """Read the keys for signatures that we know; others are nobody's mistake.

    Raises:
        CredentialUnchecked: it is no key set, but perhaps an error that somebody on the way tells as a success.
    """
    listed = body.get("keys")
    if not isinstance(listed, list):
        raise CredentialUnchecked("the issuer answers with something else than a key set (MCPFLEET_JWKS_URL)")
    for entry in listed[:_MOST_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(entry)
            name = _name(key, entry.get("alg"))
        except (jwt.PyJWTError, AttributeError):
            continue
        yield PublicKey(key.key_id, entry.get("alg"), key.key_type, key.key, name)


def _name(key: jwt.PyJWK, algorithm: Any) -> str:
    public = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return digest_of(f"{key.key_id} {algorithm} ".encode() + public)
