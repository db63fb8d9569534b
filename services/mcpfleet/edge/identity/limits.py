"""How often callers may call: by tokens of authorization's windows, which an edge reserves before it needs them."""

from __future__ import annotations

import itertools
import math
import time
from collections import OrderedDict, deque
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.authorization import MOST_LIMITS, AuthorizationClient, TakeTokens, TokensWanted
from mcpfleet.contracts.manifest import Definition, Rate
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.identity.token_batches import LimitKey, TokenBatch
from mcpfleet.edge.settings import EdgeSettings, rate_of
from mcpfleet.wire.errors import not_answered, rate_limited

_PAUSE: Final = 1.0
"""Seconds for which a limit that could not be asked for is not asked for again."""
_ASKERS: Final = 3
"""Questions on their way at once, where answers are slow."""
_PATIENCE: Final = 0.1
"""Seconds for which a question keeps the next one from going: who comes meanwhile gathers in that."""
_SPACING: Final = 0.01
"""Seconds between the beginnings of two questions, at least."""
_GATHERS: Final = 0.1
"""Seconds for which what nobody waits for gathers: a transaction costs the same for one limit and for ten."""
_LOOKS_EVERY: Final = 1.0
"""Seconds between two looks for tokens that nobody will use."""


class Limits:
    """Counts calls against the limits of the settings and of tools, over all edges.

    A call spends a token that is reserved here. Where half of a batch is left, the next one is reserved in the
    background. A call waits only where there is none: for its caller's first tokens of a window, or near its end.
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
        self._longest_wait = settings.rate_wait
        self._batches: OrderedDict[LimitKey, TokenBatch] = OrderedDict()
        self._evicted: dict[LimitKey, TokenBatch] = {}
        """Batches whose tokens are about to be given back."""
        self._large: dict[LimitKey, TokenBatch] = {}
        """Batches that hold more than may stay with a caller who hardly calls."""
        self._due: deque[TokenBatch] = deque()
        self._idle: list[anyio.Event] = []
        """Wakes an asker that has nothing to ask."""
        self._next_at = -math.inf
        """When the next question may go."""
        self._gathering = anyio.Event()
        """Set when something is due that nobody waits for."""
        self._numbers = itertools.count()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Reserve tokens, and give back those that nobody uses, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(_ASKERS):
                tasks.start_soon(self._ask_on)
            tasks.start_soon(self._gather_on)
            tasks.start_soon(self._look_on)
            task_status.started()

    async def take_request(self, endpoint: str, principal: Principal) -> None:
        """Count a request of any method but `server/discover`.

        Raises:
            Rejection: 429 where the caller's limit is used up; 504 where nobody can tell, and the settings say refuse.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "requests", self._requests))

    async def take_look(self, endpoint: str, principal: Principal) -> None:
        """Count what is looked up before a request is served, by the rate of requests; raises as `take_request`."""
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "looks", self._requests))

    async def take_read(self, endpoint: str, principal: Principal) -> None:
        """Count a reading by which an edge finds out what a listener may hear, by the rate of requests.

        Raises as `take_request`.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "reads", self._requests))

    async def take_control(self, endpoint: str, principal: Principal) -> None:
        """Count an answer to the server, or what takes something back: requests at their limit keep nobody from that.

        By the rate of requests (L7); raises as `take_request`.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "control", self._requests))

    async def take_tool(self, endpoint: str, principal: Principal, definition: Definition) -> None:
        """Count a call of a tool, against the limit of all tools and the tool's own; raises as `take_request`."""
        partition = principal.partition
        rate = self._tools if partition is not None else self._anonymous
        if rate is not None:
            await self._take(_key(endpoint, partition, "tools", rate))
        if definition.rate is not None:
            await self._take(_key(endpoint, partition, "tool", definition.rate, definition.name))

    async def take_completion(self, endpoint: str, principal: Principal) -> None:
        """Count a completion (M40); raises as `take_request`."""
        rate = self._completions if principal.partition is not None else self._anonymous
        if rate is not None:
            await self._take(_key(endpoint, principal.partition, "completions", rate))

    async def give_back(self) -> None:
        """Give back what an edge that leaves holds beyond the smallest batches."""
        for batch in self._large.values():
            batch.giving = batch.left
        while self._large:
            large = [self._large.popitem()[1] for _ in range(min(len(self._large), MOST_LIMITS))]
            asking = [batch for batch in large if not batch.is_due]
            for batch in asking:
                batch.is_due = True
            await self._ask(asking)

    # -- spending -----------------------------------------------------------------------------------------------------

    async def _take(self, key: LimitKey) -> None:
        batch = self._batches.get(key)
        if batch is None:
            batch = self._open(key)
        else:
            self._batches.move_to_end(key)
        if not self._spend(batch):
            await self._wait(batch)

    def _spend(self, batch: TokenBatch) -> bool:
        """Use a token that is reserved here.

        Raises:
            Rejection: 429 where the window has none; 504 where nobody can tell, and the settings say refuse.
        """
        now = time.monotonic()
        if batch.spend(now):
            if batch.left <= batch.renew_at:
                # The other half lasts about as long as the first, unless a burst has begun.
                hurries = batch.left <= batch.renew_at // 2 or now - batch.asked_at < 2 * _GATHERS
                self._need(batch, hurries=hurries)
            return True
        if now < batch.full_until:
            if now >= batch.check_at:
                self._need(batch)
            raise rate_limited(max(1, math.ceil(batch.full_until - now)))
        if now < batch.unknown_until:
            self._check_unknown()
            return True
        return False

    async def _wait(self, batch: TokenBatch) -> None:
        """Wait for a token. Each question brings one for each call that waits then, as far as the window has them."""
        batch.waiting += 1
        try:
            with anyio.move_on_after(self._longest_wait):
                while not self._spend(batch):
                    self._need(batch, hurries=True)
                    if batch.answered is None:
                        batch.answered = anyio.Event()
                    await batch.answered.wait()
                return
        finally:
            batch.waiting -= 1
        self._not_known([batch], "no answer in time")
        self._check_unknown()

    def _check_unknown(self) -> None:
        if not self._allows_unknown:
            raise not_answered("authorization")

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _open(self, key: LimitKey) -> TokenBatch:
        batch = self._evicted.pop(key) if key in self._evicted else TokenBatch(key)
        self._batches[key] = batch
        if len(self._batches) > self._entries:
            self._evict()
        return batch

    def _evict(self) -> None:
        """Forget the batch that was used least recently, and give back what is left of it."""
        key, batch = self._batches.popitem(last=False)
        if batch.is_due or batch.waiting:  # it is in use, and a second one for its key would ask beside it
            self._batches[key] = batch
        elif batch.left and time.monotonic() < batch.until:
            batch.giving = batch.left
            self._evicted[key] = batch
            self._need(batch)

    async def _look_on(self) -> None:
        """Look for tokens that nobody will use, and have them given back."""
        while True:
            await anyio.sleep(_LOOKS_EVERY)
            now = time.monotonic()
            for key, batch in list(self._large.items()):
                if now >= batch.until or batch.left <= batch.small:
                    del self._large[key]
                elif surplus := batch.surplus():
                    batch.giving = surplus
                    self._need(batch)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _need(self, batch: TokenBatch, *, hurries: bool = False) -> None:
        """Have a batch asked about, unless it is already; at once, or together with what else is due soon."""
        if not batch.is_due:
            batch.is_due = True
            self._due.append(batch)
        if hurries:
            self._wake()
        else:
            self._gathering.set()

    def _wake(self) -> None:
        if self._due and self._idle:
            self._idle.pop().set()

    async def _gather_on(self) -> None:
        while True:
            self._gathering = anyio.Event()
            await self._gathering.wait()
            await anyio.sleep(_GATHERS)
            self._wake()

    async def _ask_on(self) -> None:
        """Ask about what is due, many limits at once."""
        while True:
            now = time.monotonic()
            if not self._due:
                woken = anyio.Event()
                self._idle.append(woken)
                await woken.wait()
            elif now < self._next_at:
                await anyio.sleep(self._next_at - now)
            else:
                due = [self._due.popleft() for _ in range(min(len(self._due), MOST_LIMITS))]
                self._next_at = now + _PATIENCE
                await self._ask(due)
                self._next_at = min(self._next_at, now if self._due else now + _SPACING)

    async def _ask(self, batches: list[TokenBatch]) -> None:
        asked = time.monotonic()
        asking = [(batch, wanted) for batch in batches if (wanted := batch.wants(asked)) is not None]
        try:
            if asking:
                await self._ask_about(asking, asked)
        except BusError as error:
            self._not_known([batch for batch, wanted in asking if wanted.wanted], str(error))
            for batch, _ in asking:
                batch.renew_later()
        finally:
            for batch in batches:
                batch.is_due = False
                self._evicted.pop(batch.key, None)
                if batch.answered is not None:
                    batch.answered.set()
                    batch.answered = None

    async def _ask_about(self, asking: list[tuple[TokenBatch, TokensWanted]], asked: float) -> None:
        # Numbers rise, so that the store tells a message that is late from a new one.
        identifier = f"{self._edge}{next(self._numbers):016x}"
        question = TakeTokens(id=identifier, limits=tuple(wanted for _, wanted in asking))
        answers = await self._client.take_tokens(question)
        now = time.monotonic()
        for (batch, wanted), granted in zip(asking, answers, strict=True):
            if granted is not None:
                batch.add(granted, wanted, asked, now)
                if batch.left > batch.small:
                    self._large[batch.key] = batch
            elif wanted.wanted:
                self._not_known([batch], "no answer from a service of the release before")

    def _not_known(self, batches: list[TokenBatch], error: str) -> None:
        """Go by the settings for a while."""
        if not batches:
            return
        now = time.monotonic()
        for batch in batches:
            batch.unknown_until = now + _PAUSE
        key = batches[0].key
        self._log.warning(
            "a limit is not known", endpoint=key.endpoint, kind=key.kind, limits=len(batches), error=error
        )


def _key(endpoint: str, partition: str | None, kind: str, rate: Rate, name: str = "") -> LimitKey:
    return LimitKey(endpoint, partition, kind, name, rate.calls, rate.seconds)
