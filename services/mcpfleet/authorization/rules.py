"""Authorization's decisions: the principal that a credential's claims stand for. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcpfleet.authorization.verifier import CredentialRefused, Reason, Verified, for_another_audience
from mcpfleet.contracts.access import is_for, is_scope
from mcpfleet.contracts.authorization import Admitted
from mcpfleet.contracts.principal import Principal

_MOST_SCOPES: Final = 256
_LONGEST: Final = 1024
"""Characters of a subject, a client or a tenant."""
_DAY: Final = 86_400.0
"""Seconds for which a credential without an expiry is said to be good."""


def admit_anonymous(lasts: float) -> Admitted:
    """Admit a caller without a name, as mode `none` does with everyone.

    A credential is ignored here, good or bad. Nothing could check it, and a client that has one for another server must
    be able to try this one.

    Args:
        lasts: seconds for which an edge may use the verdict.
    """
    return Admitted(principal=Principal(), lasts=lasts)


def admit(
    verified: Verified, *, at: float, lasts: float, revoked: float | None, lasts_heard: float | None = None
) -> Admitted:
    """Admit a credential's bearer until the verdict or the credential ends, whichever is sooner.

    Args:
        verified: what the credential says.
        at: now, in seconds since 1970.
        lasts: seconds for which an edge may use a verdict.
        revoked: when its principal was last revoked; None where that never happened.
        lasts_heard: seconds for which an edge may use the verdict while it hears that the credential's key is good.

    Raises:
        CredentialRefused: it has expired, or was issued before the revocation, or at an unknown time.
    """
    if revoked is not None and (verified.issued is None or verified.issued <= revoked):
        raise CredentialRefused("revoked", Reason.REVOKED)
    left = min(_DAY, verified.expires - at) if verified.expires is not None else _DAY
    if left <= 0:
        raise CredentialRefused("expired", Reason.EXPIRED)
    admitted = Admitted(principal=verified.principal, lasts=min(lasts, left), good_for=left)
    if verified.key is None or lasts_heard is None:
        return admitted
    return admitted.model_copy(update={"key": verified.key, "lasts_heard": min(lasts_heard, left)})


def verified_by(claims: Mapping[str, Any], *, resource: str, tenant_claim: str, has_end: bool = True) -> Verified:
    """Read the principal of claims: a checked token's own, or those of an issuer's answer about a token.

    Args:
        claims: as the issuer made them.
        resource: the URL for which the token must be issued.
        tenant_claim: the claim that names the tenant; empty for none.
        has_end: the claims must have an expiry.

    Raises:
        CredentialRefused: it is for another resource, or lacks a required claim.
    """
    if not is_for(words(claims.get("aud")), resource):
        raise for_another_audience()
    subject, client = _name(claims, "sub"), _name(claims, "client_id") or _name(claims, "azp")
    expires = _moment(claims, "exp")
    if expires is None and has_end:
        raise CredentialRefused("it does not say when it expires", Reason.CLAIMS)
    tenant = _name(claims, tenant_claim) if tenant_claim else None
    principal = Principal(subject=subject, client=client, tenant=tenant, scopes=scopes_of(claims))
    return Verified(named(principal), expires=expires, issued=_moment(claims, "iat"))


def named(principal: Principal) -> Principal:
    """Give a principal a subject: a client without a subject is its own subject.

    Raises:
        CredentialRefused: it has neither; where credentials are needed, nobody is admitted without a name.
    """
    client, tenant = principal.client or None, principal.tenant or None
    subject = principal.subject or client
    if subject is None:
        raise CredentialRefused("it names neither a subject nor a client", Reason.CLAIMS)
    if not all(map(_is_written, filter(None, (subject, client, tenant)))):
        raise CredentialRefused("it has a name that cannot be written", Reason.CLAIMS)
    return Principal(subject=subject, client=client, tenant=tenant, scopes=principal.scopes)


def scopes_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The scopes that claims grant, in order: `scope`, or `scp`, which some issuers use."""
    found = words(claims.get("scope")) or words(claims.get("scp"))
    return tuple(sorted({word for text in found for word in text.split(" ") if is_scope(word)}))[:_MOST_SCOPES]


def expanded(scopes: Iterable[str], implies: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Add the scopes that scopes imply, to any depth (M64)."""
    all_of_them: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in all_of_them:
            all_of_them.add(scope)
            waiting.extend(implies.get(scope, ()))
    return tuple(sorted(all_of_them))


def words(value: Any) -> tuple[str, ...]:
    """Read a claim that is one text, or a list of them."""
    values = value if isinstance(value, list) else [value]
    return tuple(each for each in values if isinstance(each, str) and each)


def _name(claims: Mapping[str, Any], claim: str) -> str | None:
    value = claims.get(claim)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _LONGEST or not _is_written(value):
        raise CredentialRefused(f"the claim {claim} is not a name", Reason.CLAIMS)
    return value


def _is_written(text: str) -> bool:
    """Whether a text can be written as UTF-8: half of a surrogate pair, which JSON can say, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _moment(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CredentialRefused(f"the claim {claim} is not a time", Reason.CLAIMS)
    try:
        moment = float(value)
    except OverflowError:
        moment = math.inf
    if not math.isfinite(moment):
        raise CredentialRefused(f"the claim {claim} is not a time", Reason.CLAIMS)
    return moment
