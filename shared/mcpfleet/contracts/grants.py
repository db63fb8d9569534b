"""The messages about grants of sessions of 2025: the right of a session to hear of a URI (X56, X57).

A grant is a row of subscriptions. It lasts as long as its lease, which subscriptions has authorization renew. No
message has a token: the principal, the end of its credential and the newest known revocation stand for it.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import LONGEST_NAME, POOL_PATTERN
from mcpfleet.contracts.principal import Principal

Uri = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]

_TIMEOUT: Final = 6.0
"""Seconds for an answer: those of the operator's policy, and of the way there."""
MOST_HOLDERS: Final = 256
"""Holders in one question."""


class Holder(Message):
    """The caller to whom a right was given, as the newest admitted request showed it."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    principal: Principal
    number: int = 0
    """The newest revocation that its admission included."""
    credential_lasts: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Seconds for which its credential is good; None if it has no known end, or there is none."""


class NewGrant(Message):
    """A session may hear of a URI: its caller may read it."""

    holder: Holder
    pool: str = Field(pattern=POOL_PATTERN)
    """The pool that serves the URI."""
    lasts: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Seconds for which the operator's policy allows it; None where it judges none."""


class UriGrant(Message):
    """A session's right to hear of a URI, as it is now."""

    uri: Uri
    generation: int = 0
    """Rises with each decision on a subscribe; an answer about an older generation changes nothing."""
    lasts: float | None = Field(None, allow_inf_nan=False)
    """Seconds that its lease still holds, negative for a lapsed one; None without a lease, as in the former release."""
    dirty: int = 0
    """Not 0 where the URI may have changed without a full notification: the number of the change (X59)."""
    number: int | None = None
    """The newest revocation, or change of policy, that its last decision included; None in the former release."""


class HeldUris(Message):
    """A holder, and the URIs that it hears of."""

    holder: Holder
    uris: tuple[Uri, ...] = ()


class RenewGrants(Message):
    """Subscriptions asks whether holders of grants may go on hearing of URIs."""

    holders: tuple[HeldUris, ...] = Field(max_length=MOST_HOLDERS)


class Renewal(Message):
    """The answer about one holder."""

    allowed: bool
    lasts: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Seconds for which the right goes on, at most."""
    undecided: bool = False
    """The operator's policy gave no answer: it is asked again. A former release, which does not know of this, reads a
    right that has lapsed."""


class GrantsRenewed(Message):
    """The answers, in the order of the holders."""

    renewals: tuple[Renewal, ...]
    number: int = 0
    """The newest revocation, or change of policy, that they include."""


RENEW = Rpc("authorization.renew", RenewGrants, GrantsRenewed, asked_by="subscriptions", repeat=True)


class GrantsClient:
    """Asks authorization for subscriptions; the method raises `BusError`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def renew(self, question: RenewGrants) -> GrantsRenewed:
        """Return the answer about each holder."""
        return await ask(self._bus, RENEW, question, timeout=_TIMEOUT)
