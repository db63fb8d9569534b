"""Authorization's handlers."""

from __future__ import annotations

from typing import Final

from mcpfleet.authorization.rules import admit_anonymous
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.actor import Actor, Asked
from mcpfleet.contracts.authorization import ADMIT, Admit, Admitted

GROUP: Final = "authorization"


class AuthorizationActor:
    """Answers edges that ask who a caller is."""

    def __init__(self, settings: AuthorizationSettings) -> None:
        self._settings = settings

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(ADMIT, self.admit, group=GROUP)

    async def admit(self, question: Admit, asked: Asked) -> Admitted:  # noqa: ARG002
        """Say who the caller is, and for how long an edge may go by that."""
        return admit_anonymous(self._settings.admission_lasts)
