"""Who the caller is: authorization's verdicts, kept for their time, asked for once however many wait."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

import anyio

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.authorization import Admit, Admitted, AuthorizationClient
from mcpfleet.contracts.principal import Principal
from mcpfleet.wire.errors import not_answered, unauthorized


@dataclass(frozen=True, slots=True)
class _Verdict:
    admitted: Admitted
    expires: float


class Admission:
    """Admits callers; at most `entries` verdicts are kept, the least recently used go first."""

    def __init__(self, client: AuthorizationClient, *, entries: int) -> None:
        self._client = client
        self._entries = entries
        self._verdicts: OrderedDict[str, _Verdict] = OrderedDict()
        self._asking: dict[str, anyio.Event] = {}

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
        """Let one of those who wait ask; the others take its verdict, or ask in turn where it got none."""
        while (asked := self._asking.get(key)) is not None:
            await asked.wait()
            verdict = self._verdicts.get(key)
            if verdict is not None and verdict.expires > time.monotonic():
                return verdict
        self._asking[key] = anyio.Event()
        try:
            return await self._ask(key)
        finally:
            self._asking.pop(key).set()

    async def _ask(self, endpoint: str) -> _Verdict:
        asked = time.monotonic()
        try:
            admitted = await self._client.admit(Admit(endpoint=endpoint))
        except BusError as error:
            raise not_answered("authorization") from error
        verdict = _Verdict(admitted, asked + admitted.lasts)
        self._verdicts[endpoint] = verdict
        if len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)
        return verdict
