"""For how long a stream may go on, and how that is asked again: the stream's own seam to whoever admits callers."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.request import Inquiry


class Unasked(Exception):
    """Raised when nobody could be asked whether a permission goes on; it is asked again until its end (K19)."""


class Permission(Protocol):
    """A stream's permission, which it keeps for its life."""

    principal: Principal
    """Whom it is given to, as the newest answer has it."""
    expires: float
    """Monotonic seconds until which it holds; infinite where nobody's permission ends."""

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

    async def renew(self) -> bool:
        """Go on."""
        return True


Permit: TypeAlias = Callable[[Inquiry], Awaitable[Permission]]
"""Gives the caller of a listen request its permission; raises `Rejection` where it has none."""


async def permit_all(inquiry: Inquiry) -> Permission:
    """Let everybody listen that was admitted."""
    return Unending(inquiry.principal)
