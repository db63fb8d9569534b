"""For how long a stream may go on, and how that is asked again: the stream's own seam to whoever admits callers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.identity.admission import Admission, Permit
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.wire.errors import NotAnswered, Rejection


class Unasked(Exception):
    """Raised when nobody could be asked whether a permission goes on; it is asked again until its end (K19)."""


class Permission(Protocol):
    """A stream's permission, which it keeps for its life."""

    principal: Principal
    """Whom it is given to, as the newest answer has it."""
    expires: float
    """Monotonic seconds until which it holds; infinite where nobody's permission ends."""
    key: str | None
    """Names what makes the credential good, where authorization can name it."""
    asked_at: float
    """When authorization was asked last (monotonic seconds)."""

    async def renew(self) -> bool:
        """Ask whether it goes on, and move its end; false where it was refused.

        Raises:
            Unasked: nobody answered in time.
        """


class Unending:
    """The permission where callers need none (S1): it has no end."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.expires = math.inf
        self.key: str | None = None
        self.asked_at = -math.inf

    async def renew(self) -> bool:
        """Go on."""
        return True


class Lasting:
    """The permission of who was admitted by a credential, which the stream keeps for its life and tells nobody else."""

    def __init__(
        self, admission: Admission, endpoint: str, credential: Credential, given: Permit, *, longest: float
    ) -> None:
        """Begin with what was given; it holds for `longest` seconds from its asking at most (N6)."""
        self._admission = admission
        self._endpoint = endpoint
        self._credential = credential
        self._longest = longest
        self._take(given)

    def _take(self, given: Permit) -> None:
        self.principal = given.principal
        self.expires = min(given.expires, given.asked + self._longest)
        self.asked_at = given.asked
        self.key = given.key

    async def renew(self) -> bool:
        """Ask authorization, unless others have for the same credential since."""
        try:
            given = await self._admission.permit(self._endpoint, self._credential)
            if given.asked <= self.asked_at:
                given = await self._admission.permit(self._endpoint, self._credential, anew=True)
        except NotAnswered as error:
            raise Unasked from error
        except Rejection:
            return False
        self._take(given)
        return True


class Permits:
    """Says who may have a stream, and for how long."""

    def __init__(self, admission: Admission, *, longest: float) -> None:
        """Give permissions by verdicts; none holds longer than `longest` seconds without being asked for again."""
        self._admission = admission
        self._longest = longest

    def check(self, exchange: Exchange, uris: Iterable[str]) -> None:
        """Check that the caller's scopes cover the reading of what it watches (D10); what is not there needs none.

        Raises:
            Rejection: 403, which names the scopes.
        """
        if not exchange.view.needs_scopes:
            return
        for uri in uris:
            target = exchange.view.find_resource(uri)
            if target is not None and target.listed.definition.scopes:
                self._admission.require(exchange.endpoint, exchange.caller, target.listed.definition.scopes)

    async def give(self, endpoint: str, principal: Principal, credential: Credential | None) -> Permission:
        """Give a stream its permission; raises as `Admission.admit`."""
        if credential is None:
            return Unending(principal)
        given = await self._admission.permit(endpoint, credential)
        return Lasting(self._admission, endpoint, credential, given, longest=self._longest)
