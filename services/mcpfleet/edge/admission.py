"""Who the caller is: authorization's verdicts, kept for their time, asked for once however many wait."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import anyio

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.authorization import Admit, Admitted, AuthorizationClient
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.wire.errors import Rejection, not_answered, unauthorized


@dataclass(frozen=True, slots=True)
class _Verdict:
    admitted: Admitted
    expires: float


@dataclass(slots=True, eq=False)
class _Asking:
    """A question that is on its way, and what it ended with; nothing where its asker left."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Callable[[], _Verdict] | None = None


def _raise(rejection: Rejection) -> NoReturn:
    raise rejection


class Admission:
    """Admits callers; at most `entries` verdicts are kept, the least recently used go first."""

    def __init__(self, client: AuthorizationClient, *, entries: int) -> None:
        self._client = client
        self._entries = entries
        self._verdicts: OrderedDict[str, _Verdict] = OrderedDict()
        self._asking: dict[str, _Asking] = {}

    async def admit(self, endpoint: str) -> Principal:
        """Admit a caller without a credential, the only kind while authorization has no mode but none.

        Raises:
            Rejection: 401 where authorization refused, 504 where it did not answer in time.
        """
        verdict = self._verdicts.get(endpoint)
        if verdict is None or verdict.expires <= time.monotonic():
            verdict = await self._ask_once(endpoint)
        else:
            self._verdicts.move_to_end(endpoint)
        if verdict.admitted.principal is None:
            raise unauthorized()
        return verdict.admitted.principal

    async def _ask_once(self, key: str) -> _Verdict:
        """Let one of those who wait ask, and the others have its outcome; where it left, the next one asks."""
        while (asking := self._asking.get(key)) is not None:
            await asking.done.wait()
            if asking.outcome is not None:
                return asking.outcome()
        asking = self._asking[key] = _Asking()
        try:
            verdict = await self._ask(key)
        except Rejection as rejection:
            asking.outcome = partial(_raise, rejection)
            raise
        else:
            asking.outcome = lambda: verdict
            return verdict
        finally:
            del self._asking[key]
            asking.done.set()

    async def _ask(self, endpoint: str) -> _Verdict:
        asked = time.monotonic()
        try:
            admitted = await self._client.admit(Admit(endpoint=endpoint))
        except BusError as error:
            raise not_answered("authorization") from error
        if admitted.principal == ANONYMOUS:  # one object for all, so that the path of a call need not compare
            admitted = admitted.model_copy(update={"principal": ANONYMOUS})
        verdict = _Verdict(admitted, asked + admitted.lasts)
        self._verdicts[endpoint] = verdict
        if len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)
        return verdict
