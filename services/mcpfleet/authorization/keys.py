"""The issuer's public keys: fetched at intervals and when a token names an unknown one, and kept while it is away."""

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
"""Keys that are read from one set."""
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key that a family of algorithms needs."""
_COMPLAINS_EVERY: Final = 60.0
"""Seconds between two log lines about keys that cannot be fetched."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One of the issuer's public keys."""

    id: str | None
    algorithm: str | None
    """The only algorithm that it signs with; None where the set names none."""
    kind: str | None
    public: Any
    name: str
    """A digest of the key, its id and its algorithm, so that another key under the same id has another name."""

    def signs_by(self, algorithm: str) -> bool:
        """Whether it can sign with an algorithm."""
        return self.algorithm == algorithm if self.algorithm else self.kind == _KINDS.get(algorithm[:2])


class Keys:
    """The issuer's key set. Looking up a known key never waits for the issuer."""

    def __init__(self, issuer: IssuerClient, settings: AuthorizationSettings, *, log: FilteringBoundLogger) -> None:
        self._issuer = issuer
        self._settings = settings
        self._log = log
        self._url = settings.jwks_url
        self._keys: tuple[PublicKey, ...] = ()
        self._began = time.monotonic()
        self._fetched = -math.inf
        self._asked = -math.inf
        """When the keys were last fetched for an unknown key (monotonic seconds)."""
        self._fetching: anyio.Event | None = anyio.Event()
        """Set when the fetch ends that lookups of unknown keys wait for; None where there is no such fetch."""
        self._is_wanted = anyio.Event()
        self._complained = -math.inf

    def age(self) -> float:
        """Seconds since the keys were fetched, or since the start if they never were."""
        return time.monotonic() - max(self._fetched, self._began)

    def trusted(self) -> Trusted | None:
        """The keys of the last fetch; None before the first."""
        if self._fetched == -math.inf:
            return None
        return Trusted(tuple(key.name for key in self._keys), time.monotonic() - self._fetched)

    async def run(self) -> None:
        """Fetch the keys at intervals, and when an unknown one is wanted, until cancelled."""
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
        """Find the key that a token names as its signer.

        Raises:
            CredentialRefused: the issuer has no such key.
            CredentialUnchecked: the issuer's keys could not be fetched, or are too old.
        """
        key = self._look(kid, algorithm)
        if key is None:
            await self._wait_fetched()
            key = self._look(kid, algorithm)
        if time.monotonic() - self._fetched > self._settings.jwks_stale:
            raise CredentialUnchecked("the issuer's keys cannot be fetched (MCPFLEET_ISSUER, MCPFLEET_JWKS_URL)")
        if key is None:
            raise CredentialRefused("the issuer does not have the key that signed it", Reason.KEY)
        return key

    def _look(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Find a key by its id. A token without a key id matches only if exactly one key fits."""
        fitting = [key for key in self._keys if key.signs_by(algorithm) and kid in (None, key.id)]
        return fitting[0] if len(fitting) == 1 or (kid is not None and fitting) else None

    async def _wait_fetched(self) -> None:
        """Have the keys fetched again, at most once in `jwks_cooldown`, since anybody can invent an unknown key.

        The loop fetches them, so a caller that stops waiting does not end the fetch.
        """
        now = time.monotonic()
        if self._fetching is None:
            if now - self._asked < self._settings.jwks_cooldown:
                return
            self._asked = now
            self._fetching = anyio.Event()
            self._is_wanted.set()
        with anyio.move_on_after(2 * self._settings.authorization_timeout):  # an earlier fetch may still run
            await self._fetching.wait()

    async def _fetch(self) -> None:
        try:
            body = await self._issuer.get(await self._find_url())
            keys = tuple(_read(body))
        except CredentialUnchecked as error:
            now = time.monotonic()
            if now - self._complained >= _COMPLAINS_EVERY:
                self._complained = now
                self._log.warning("issuer keys not fetched", error=str(error), known=len(self._keys))
            return
        self._keys, self._fetched = keys, time.monotonic()
        self._complained = -math.inf

    async def _find_url(self) -> str:
        """Return the keys' URL: the setting's, or else the one in the issuer's metadata."""
        if self._url:
            return self._url
        problem = CredentialUnchecked(f"{self._settings.issuer} has no metadata (MCPFLEET_ISSUER)")
        for url in metadata_urls(self._settings.issuer):
            try:
                metadata = await self._issuer.get(url)
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
    """The URLs at which an issuer's metadata may be, by RFC 8414 and by OpenID Connect."""
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
    """Read the keys whose kind we know, and skip the others.

    Raises:
        CredentialUnchecked: the body is not a key set; a proxy may answer so with status 200.
    """
    listed = body.get("keys")
    if not isinstance(listed, list):
        raise CredentialUnchecked("the issuer's answer is not a key set (MCPFLEET_JWKS_URL)")
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
