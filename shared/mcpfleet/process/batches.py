"""Batches that form by themselves: items that arrive during one batch form the next.

A transaction or a message costs almost the same for one item and for fifty. No item waits for company: at a quiet
time each is a batch of its own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Place(Generic[Item, Result]):
    __slots__ = ("error", "is_answered", "is_performed", "is_taken", "item", "result", "turn")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = asyncio.Event()
        """Set when it has been performed, or when its turn has come to perform for all that wait."""
        self.is_taken = False
        """It is in a batch, and waits for its turn no more."""
        self.is_performed = False
        """Its batch is over."""
        self.is_answered = False
        """`result` is the result of performing it."""
        self.result: Result | None = None
        self.error: BaseException | None = None


class Batches(Generic[Item, Result]):
    """Performs items together; a cancelled waiter takes no other item along."""

    def __init__(
        self,
        perform: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        most: int,
        *,
        spoils: type[Exception] | tuple[type[Exception], ...],
        patience: float | None = None,
    ) -> None:
        """Describe the batches.

        Args:
            perform: performs all or none of them, and returns a result for each, in their order.
            most: items of one batch. The callers bound how many wait.
            spoils: errors of `perform` without an item at fault, so that each item by itself would fare no better.
            patience: seconds from the beginning of a batch after which it delays nobody: later items are performed
                beside it. None allows one batch at a time.
        """
        self._perform = perform
        self._most = most
        self._spoils = spoils
        self._patience = patience
        self._waiting: deque[_Place[Item, Result]] = deque()
        self._performing: set[asyncio.Future[None]] = set()
        """Batches of several; the loop itself holds its tasks weakly."""
        self._newest: object = None
        """The batch that began last; None once it is performed."""
        self._held_until = -math.inf
        """Until when others wait for it (monotonic seconds)."""

    async def do(self, item: Item) -> Result:
        """Have an item performed; raise the error of performing it."""
        place: _Place[Item, Result] = _Place(item)
        self._waiting.append(place)
        try:
            while not place.is_performed:
                if not place.is_taken and not self._is_held:
                    await self._next()
                else:
                    await self._wait(place)
        except anyio.get_cancelled_exc_class() as error:
            if not place.is_taken:  # nobody has begun with it
                error.is_undone = True  # type: ignore[attr-defined]  # the owner of the deadline reads it
            raise
        finally:
            if not place.is_taken:
                self._waiting.remove(place)
            self._wake()
        if place.error is not None:
            raise place.error
        return place.result  # type: ignore[return-value]  # it is set where there is no error

    @property
    def _is_held(self) -> bool:
        return self._newest is not None and time.monotonic() < self._held_until

    async def _wait(self, place: _Place[Item, Result]) -> None:
        """Wait for a turn, or until the newest batch delays nobody any more."""
        if place.is_taken or self._patience is None:  # one batch at a time, so there is no patience
            await place.turn.wait()
            place.turn.clear()
            return
        with anyio.move_on_after(self._held_until - time.monotonic()):
            await place.turn.wait()
            place.turn.clear()

    def _wake(self) -> None:
        """Let the first waiter perform the next batch, unless one is under way."""
        if self._waiting and self._newest is None:
            self._waiting[0].turn.set()

    async def _next(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        for place in batch:
            place.is_taken = True
        self._newest = batch
        self._held_until = math.inf if self._patience is None else time.monotonic() + self._patience
        if len(batch) == 1:
            await self._perform_batch(batch)
            return
        # A task of its own: a cancelled waiter leaves at once, and takes no other item along. A shield would not do,
        # since it keeps out only anyio's scopes, and an actor's deadlines are asyncio's (K30).
        task = asyncio.ensure_future(self._perform_batch(batch))
        self._performing.add(task)
        task.add_done_callback(self._performing.discard)

    async def _perform_batch(self, batch: list[_Place[Item, Result]]) -> None:
        """Perform a batch; `perform` bounds its time."""
        try:
            await self._all_or_each(batch)
        except Exception as error:
            for place in batch:
                place.error = error
        except BaseException as error:
            for place in batch:
                place.error = place.error or (None if place.is_answered else error)
            raise
        finally:
            if self._newest is batch:
                self._newest = None
            for place in batch:
                place.is_performed = True
                place.turn.set()
            self._wake()

    async def _all_or_each(self, batch: list[_Place[Item, Result]]) -> None:
        """Perform all together; if one of them spoils it for all, perform each by itself."""
        try:
            results = await self._perform([place.item for place in batch])
        except self._spoils:
            raise
        except Exception:
            if len(batch) == 1:
                raise
            for place in batch:
                await self._alone(place)
            return
        for place, result in zip(batch, results, strict=True):
            place.result, place.is_answered = result, True

    async def _alone(self, place: _Place[Item, Result]) -> None:
        try:
            (place.result,) = await self._perform([place.item])
            place.is_answered = True
        except Exception as error:
            place.error = error
