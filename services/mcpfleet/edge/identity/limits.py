"""Limits how often callers may call, by tokens that an edge reserves from authorization in advance."""

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
"""Seconds before an unanswered limit is asked for again."""
_ASKERS: Final = 3
"""Questions that are on their way at once, where answers are slow."""
_PATIENCE: Final = 0.1
"""Seconds that the next question waits for an answer to the last one, and gathers limits meanwhile."""
_SPACING: Final = 0.01
"""Seconds between the beginnings of two questions, at least."""
_GATHERS: Final = 0.1
"""Seconds for which limits without a waiting call gather: a transaction costs the same for one limit and for ten."""
_CHECKS_EVERY: Final = 1.0
"""Seconds between two searches for surplus tokens."""


class Limits:
    """Counts calls against the limits of the settings and of tools, for all edges together.

    A call spends a token that this edge has reserved. At half of a batch, the next batch is reserved in the background.
    A call waits only where no token is left: for its caller's first tokens of a window, or near the window's end.
    """

    def __init__(
        self, client: AuthorizationClient, settings: EdgeSettings, *, edge: str, log: FilteringBoundLogger
    ) -> None:
        """Read the limits.

        Args:
            client: authorization's, which waits `MCPFLEET_RATE_WAIT` seconds for answers.
            settings: the edge's.
            edge: its process id, 16 hexadecimal digits.
            log: names the limits that cannot be asked for.
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
        """Batches whose tokens are to be given back."""
        self._large: dict[LimitKey, TokenBatch] = {}
        """Batches with more tokens than a caller who hardly calls may keep."""
        self._due: deque[TokenBatch] = deque()
        self._idle: list[anyio.Event] = []
        """Each wakes an asker that has nothing to ask."""
        self._next_at = -math.inf
        """When the next question may be sent."""
        self._gathering = anyio.Event()
        """Set when a batch is due that no call waits for."""
        self._numbers = itertools.count()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Reserve tokens, and give back surplus ones, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(_ASKERS):
                tasks.start_soon(self._ask_on)
            tasks.start_soon(self._gather_on)
            tasks.start_soon(self._return_surplus)
            task_status.started()

    async def take_request(self, endpoint: str, principal: Principal) -> None:
        """Count a request of any method but `server/discover`.

        Raises:
            Rejection: 429 where the limit is used up; 504 where it is unknown, and MCPFLEET_RATE_UNKNOWN is `refuse`.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "requests", self._requests))

    async def take_lookup(self, endpoint: str, principal: Principal) -> None:
        """Count a look-up before a request, by the rate of requests; raises as `take_request`."""
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "looks", self._requests))

    async def take_read(self, endpoint: str, principal: Principal) -> None:
        """Count a read check, by which an edge finds out whether a subscriber may read a resource.

        It counts by the rate of requests; raises as `take_request`.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "reads", self._requests))

    async def take_control(self, endpoint: str, principal: Principal) -> None:
        """Count a response to the server or a cancellation, which must be possible for a caller at its request limit.

        It counts by the rate of requests, apart from them (L7); raises as `take_request`.
        """
        if self._requests is not None:
            await self._take(_key(endpoint, principal.partition, "control", self._requests))

    async def take_tool(self, endpoint: str, principal: Principal, definition: Definition) -> None:
        """Count a tool call against the limit of all tools and the tool's own; raises as `take_request`."""
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
        """Give back the tokens of a draining edge beyond the smallest batches."""
        for batch in self._large.values():
            batch.giving = batch.left
        while self._large:
            large = [self._large.popitem()[1] for _ in range(min(len(self._large), MOST_LIMITS))]
            pending = [batch for batch in large if not batch.is_due]
            for batch in pending:
                batch.is_due = True
            await self._ask(pending)

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
        """Spend a reserved token; return False where there is none.

        Raises:
            Rejection: 429 where the window has none; 504 where it is unknown, and MCPFLEET_RATE_UNKNOWN is `refuse`.
        """
        now = time.monotonic()
        if batch.spend(now):
            if batch.left <= batch.renew_at:
                # The second half lasts about as long as the first, unless a burst has begun.
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
        """Wait for a token. Each question brings one for each waiting call, as far as the window has them."""
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
        self._note_unknown([batch], "no answer in time")
        self._check_unknown()

    def _check_unknown(self) -> None:
        if not self._allows_unknown:
            raise not_answered("authorization")

    # -- batches ------------------------------------------------------------------------------------------------------

    def _open(self, key: LimitKey) -> TokenBatch:
        batch = self._evicted.pop(key) if key in self._evicted else TokenBatch(key)
        self._batches[key] = batch
        if len(self._batches) > self._entries:
            self._evict()
        return batch

    def _evict(self) -> None:
        """Remove the least recently used batch, and give its tokens back."""
        key, batch = self._batches.popitem(last=False)
        if batch.is_due or batch.waiting:  # it is in use, and a second batch of its key would ask as well
            self._batches[key] = batch
        elif batch.left and time.monotonic() < batch.until:
            batch.giving = batch.left
            self._evicted[key] = batch
            self._need(batch)

    async def _return_surplus(self) -> None:
        """Find surplus tokens from time to time, and give them back."""
        while True:
            await anyio.sleep(_CHECKS_EVERY)
            now = time.monotonic()
            for key, batch in list(self._large.items()):
                if now >= batch.until or batch.left <= batch.small:
                    del self._large[key]
                elif surplus := batch.surplus():
                    batch.giving = surplus
                    self._need(batch)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _need(self, batch: TokenBatch, *, hurries: bool = False) -> None:
        """Ask about a batch, unless that is due already; at once, or together with other batches."""
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
        """Ask about the batches that are due, many at once."""
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
        asked_at = time.monotonic()
        questions = [(batch, wanted) for batch in batches if (wanted := batch.wants(asked_at)) is not None]
        try:
            if questions:
                await self._ask_about(questions, asked_at)
        except BusError as error:
            self._note_unknown([batch for batch, wanted in questions if wanted.wanted], str(error))
            for batch, _ in questions:
                batch.renew_later()
        finally:
            for batch in batches:
                batch.is_due = False
                self._evicted.pop(batch.key, None)
                if batch.answered is not None:
                    batch.answered.set()
                    batch.answered = None

    async def _ask_about(self, questions: list[tuple[TokenBatch, TokensWanted]], asked_at: float) -> None:
        # Numbers rise, so that the store can tell a late message from a new one.
        identifier = f"{self._edge}{next(self._numbers):016x}"
        question = TakeTokens(id=identifier, limits=tuple(wanted for _, wanted in questions))
        answers = await self._client.take_tokens(question)
        now = time.monotonic()
        for (batch, wanted), granted in zip(questions, answers, strict=True):
            if granted is not None:
                batch.add(granted, wanted, asked_at, now)
                if batch.left > batch.small:
                    self._large[batch.key] = batch
            elif wanted.wanted:
                self._note_unknown([batch], "no answer from a service of the release before")

    def _note_unknown(self, batches: list[TokenBatch], error: str) -> None:
        """Apply MCPFLEET_RATE_UNKNOWN for a while."""
        if not batches:
            return
        now = time.monotonic()
        for batch in batches:
            batch.unknown_until = now + _PAUSE
        key = batches[0].key
        self._log.warning("limit unknown", endpoint=key.endpoint, kind=key.kind, limits=len(batches), error=error)


def _key(endpoint: str, partition: str | None, kind: str, rate: Rate, name: str = "") -> LimitKey:
    return LimitKey(endpoint, partition, kind, name, rate.calls, rate.seconds)
