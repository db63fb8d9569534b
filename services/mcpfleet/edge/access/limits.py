"""How often callers may call: taken from authorization's windows in small lots, where a caller has a limit."""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.authorization import AuthorizationClient, TakeFromLimit
from mcpfleet.contracts.manifest import Definition, Rate, digest_of
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.settings import EdgeSettings, rate_of
from mcpfleet.wire.errors import not_answered, rate_limited

_LOT: Final = 0.1
"""Seconds that what was taken lasts: what is left then stays in the window, counted as used."""
_PAUSE: Final = 1.0
"""Seconds for which a limit that could not be asked for is not asked for again."""


class _Key(NamedTuple):
    """What is limited, and whose calls count together."""

    endpoint: str
    partition: str | None
    """None is shared by all callers of the endpoint that have no name."""
    kind: str
    name: str
    calls: int
    seconds: float

    @property
    def digest(self) -> str:
        """Its name in the store; the rate is part of it, so that windows of different lengths are never mixed up."""
        whose = ("anonymous", "") if self.partition is None else ("partition", self.partition)
        parts = (self.endpoint, *whose, self.kind, self.name, f"{self.calls}/{self.seconds:g}")
        return digest_of("\0".join(parts).encode())


@dataclass(slots=True, eq=False)
class _Lot:
    """What this edge has of a window."""

    left: int = 0
    until: float = -math.inf
    """When what is left ends."""
    full_until: float = -math.inf
    """When the next window begins, where this one has nothing left."""
    unknown_until: float = -math.inf
    """When authorization is asked again, after it did not answer."""
    waiting: int = 0
    tenth: int = 0
    """The tenth of a second in which it was last taken from."""
    used: int = 0
    """Calls in that."""
    used_before: int = 0
    """Calls in the one before."""
    asking: anyio.Event | None = None

    def use(self, now: float) -> None:
        """Take one of what is left."""
        self.left -= 1
        tenth = int(now / _LOT)
        if tenth != self.tenth:
            self.used_before = self.used if tenth == self.tenth + 1 else 0
            self.tenth, self.used = tenth, 0
        self.used += 1


class Limits:
    """Counts calls against the limits of the settings and of tools, over all edges; asks once at a time for each.

    An edge takes as many as are waiting, or as it used in the last tenth of a second, up to what a tenth of a second of
    the limit holds: a limit that is used slowly on many edges loses little to lots that end.
    """

    def __init__(
        self, client: AuthorizationClient, settings: EdgeSettings, *, edge: str, log: FilteringBoundLogger
    ) -> None:
        """Read the limits.

        Args:
            client: authorization's, whose answers are waited for `MCPFLEET_RATE_WAIT` seconds.
            settings: the edge's.
            edge: its process id, 16 hexadecimal digits.
            log: where a limit that cannot be asked for is told.
        """
        self._client = client
        self._edge = edge
        self._log = log
        self._requests = rate_of(settings.rate_requests)
        self._tools = rate_of(settings.rate_tools)
        self._completions = rate_of(settings.rate_completions)
        self._anonymous = rate_of(settings.rate_anonymous)
        self._allows_unknown = settings.rate_unknown == "allow"
        self._entries = settings.rate_entries
        self._lots: OrderedDict[_Key, _Lot] = OrderedDict()

    async def take_request(self, endpoint: str, principal: Principal) -> None:
        """Count a request of any method but `server/discover`.

        Raises:
            Rejection: 429 where the caller's limit is used up; 504 where nobody can tell, and the settings say refuse.
        """
        if self._requests is not None:
            await self._take(_Key(endpoint, principal.partition, "requests", "", *_numbers(self._requests)))

    async def take_look(self, endpoint: str, principal: Principal) -> None:
        """Count what is looked up before a request is served, by the rate of requests; raises as `take_request`."""
        await self._take_beside("looks", endpoint, principal)

    async def take_control(self, endpoint: str, principal: Principal) -> None:
        """Count an answer to the server, or what takes something back: requests at their limit keep nobody from that.

        By the rate of requests (L7); raises as `take_request`.
        """
        await self._take_beside("control", endpoint, principal)

    async def _take_beside(self, kind: str, endpoint: str, principal: Principal) -> None:
        if self._requests is not None:
            await self._take(_Key(endpoint, principal.partition, kind, "", *_numbers(self._requests)))

    async def take_tool(self, endpoint: str, principal: Principal, definition: Definition) -> None:
        """Count a call of a tool, against the limit of all tools and the tool's own; raises as `take_request`."""
        partition = principal.partition
        rate = self._tools if partition is not None else self._anonymous
        if rate is not None:
            await self._take(_Key(endpoint, partition, "tools", "", *_numbers(rate)))
        if definition.rate is not None:
            await self._take(_Key(endpoint, partition, "tool", definition.name, *_numbers(definition.rate)))

    async def take_completion(self, endpoint: str, principal: Principal) -> None:
        """Count a completion (M40); raises as `take_request`."""
        rate = self._completions if principal.partition is not None else self._anonymous
        if rate is not None:
            await self._take(_Key(endpoint, principal.partition, "completions", "", *_numbers(rate)))

    async def _take(self, key: _Key) -> None:
        lot = self._lots.get(key)
        if lot is None:
            lot = self._lots[key] = _Lot()
            if len(self._lots) > self._entries:
                self._lots.popitem(last=False)
        else:
            self._lots.move_to_end(key)
        if not self._has(lot):
            await self._wait(key, lot)

    def _has(self, lot: _Lot) -> bool:
        """Take one of what is left here.

        Raises:
            Rejection: 429 where the window has none.
        """
        now = time.monotonic()
        if lot.left > 0 and now < lot.until:
            lot.use(now)
            return True
        if now < lot.full_until:
            raise rate_limited(max(1, math.ceil(lot.full_until - now)))
        if now < lot.unknown_until:
            self._check_unknown()
            return True
        return False

    def _check_unknown(self) -> None:
        if not self._allows_unknown:
            raise not_answered("authorization")

    async def _wait(self, key: _Key, lot: _Lot) -> None:
        """Ask, or wait for who asks, until there is one for us. Each question brings enough for all who waited."""
        lot.waiting += 1
        try:
            while not self._has(lot):
                if lot.asking is not None:
                    await lot.asking.wait()
                else:
                    await self._ask(key, lot)
        finally:
            lot.waiting -= 1

    async def _ask(self, key: _Key, lot: _Lot) -> None:
        asking = lot.asking = anyio.Event()
        likely = min(max(lot.used, lot.used_before), int(key.calls / key.seconds * _LOT))
        wanted = min(key.calls, max(lot.waiting, likely))
        asked = time.monotonic()
        question = TakeFromLimit(
            key=key.digest,
            limit=key.calls,
            seconds=key.seconds,
            wanted=wanted,
            id=self._edge + secrets.token_hex(8),
        )
        try:
            taken = await self._client.take(question)
        except BusError as error:
            lot.unknown_until = time.monotonic() + _PAUSE
            self._log.warning("a limit is not known", endpoint=key.endpoint, kind=key.kind, error=str(error))
        else:
            lot.left = min(taken.granted, wanted)
            # Nothing outlives its window; who had to wait for the answer gets its share, however long that took.
            lot.until = min(max(asked + _LOT, time.monotonic() + _LOT / 2), asked + taken.rest)
            if taken.granted < wanted:
                lot.full_until = asked + taken.rest
        finally:
            lot.asking = None
            asking.set()


def _numbers(rate: Rate) -> tuple[int, float]:
    return rate.calls, rate.seconds
