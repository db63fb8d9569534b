"""The calls that a worker holds, and what to do with one that arrives or is cancelled: decisions without I/O."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from mcpfleet.worker.slots import Slots
from mcpfleet.worker.work import CallKey, CallWork

_REMEMBERED: Final = 1024
"""Keys of cancelled calls, and as many of refused ones."""
_REMEMBERED_FOR: Final = 15.0
"""Seconds: longer than a message may be on its way."""


class ProgressRate:
    """The bound of one call's reports: a bucket that fills at the rate; beyond it the newest report waits."""

    __slots__ = ("_filled", "_rate", "_size", "_tokens", "waiting")

    def __init__(self, rate: float, now: float) -> None:
        """Start with a full bucket.

        Args:
            rate: reports a second, and the bucket's size, which is at least one.
            now: monotonic seconds.
        """
        self._rate = rate
        self._size = max(1.0, rate)
        self._tokens = self._size
        self._filled = now
        self.waiting: bytes | None = None
        """The newest report that was not sent."""

    def offer(self, body: bytes, now: float) -> bytes | None:
        """Take a report; returns it if it may be sent now, else keeps it in place of one that waits."""
        self.waiting = body
        return self.due(now)

    def due(self, now: float) -> bytes | None:
        """Take out the report that waits, if it may be sent now."""
        if self.waiting is None:
            return None
        self._tokens = min(self._size, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return None
        self._tokens -= 1
        return self.last()

    def last(self) -> bytes | None:
        """Take out the report that waits, since the call ends: the client sees how far it came."""
        body, self.waiting = self.waiting, None
        return body


@dataclass(slots=True, eq=False, kw_only=True)
class HeldCall(CallWork):
    """A call that this worker has taken and not ended; the bus's side alone reads and writes these fields."""

    progress: ProgressRate | None = None
    """None where nobody listens to its progress."""
    taken: float = field(default_factory=time.monotonic)
    is_running: bool = False
    """It has a slot; otherwise it waits for one."""
    flags: str = ""
    """Its flags, for a worker to which it is handed on."""
    has_spoken: bool = False
    """A frame was sent, which told the edge that the call is here."""
    is_cancelled: bool = False


class Placement(Enum):
    """The decision about a call that arrives."""

    RUN = auto()
    QUEUE = auto()
    BUSY = auto()
    DROP = auto()
    """It is here already, or its edge cancelled it before it came."""


class _RecentKeys:
    """The newest keys, each for a while."""

    def __init__(self) -> None:
        self._keys: OrderedDict[CallKey, float] = OrderedDict()

    def __contains__(self, key: CallKey) -> bool:
        return key in self._keys

    def add(self, key: CallKey) -> None:
        """Remember a key, and forget those that are too old or too many."""
        now = time.monotonic()
        self._keys[key] = now
        while len(self._keys) > _REMEMBERED or now - next(iter(self._keys.values())) > _REMEMBERED_FOR:
            self._keys.popitem(last=False)


class Table:
    """Held calls, within slots and a queue."""

    def __init__(self, slots: Slots, *, queue: int) -> None:
        """Hold nothing yet.

        Args:
            slots: the worker's.
            queue: calls that may wait for a slot.
        """
        self._slots = slots
        self._queue_size = queue
        self._held: dict[CallKey, HeldCall] = {}
        self._queue: deque[HeldCall] = deque()
        self._cancelled = _RecentKeys()
        self._refused = _RecentKeys()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: CallKey) -> HeldCall | None:
        """The held call of this key."""
        return self._held.get(key)

    def all(self) -> list[HeldCall]:
        """Every held call."""
        return list(self._held.values())

    def place(self, call: HeldCall) -> Placement:
        """Decide about a call that arrives, and hold it if it stays."""
        key = call.key
        if key in self._held or key in self._cancelled or key in self._refused:
            return Placement.DROP
        if self._slots.free:
            self._held[key] = call
            self._start(call)
            return Placement.RUN
        if len(self._queue) < self._queue_size:
            self._held[key] = call
            self._queue.append(call)
            return Placement.QUEUE
        self._refused.add(key)  # its edge is told that it has not run: a doubled message must not run it
        return Placement.BUSY

    def cancel(self, key: CallKey) -> HeldCall | None:
        """Note a cancel; returns the call whose handler must hear it.

        A call that waits is forgotten at once. A call that has not come is dropped when it comes.
        """
        call = self._held.get(key)
        if call is None:
            self._cancelled.add(key)
            return None
        if not call.is_running:
            self._queue.remove(call)
            del self._held[key]
            self._cancelled.add(key)
            return None
        call.is_cancelled = True
        return call

    def end(self, call: HeldCall) -> None:
        """Forget a call whose handler has returned, and free its slot."""
        del self._held[call.key]
        if call.is_cancelled:
            self._cancelled.add(call.key)  # a doubled message of it must not run it again
        self._slots.give_back()

    def hand_over(self, call: HeldCall) -> None:
        """Forget a call whose handler goes on as a task, in the same slot."""
        del self._held[call.key]
        self._cancelled.add(call.key)  # a doubled message of it must not run it again

    def next(self) -> HeldCall | None:
        """The call that waits longest, if there is a slot for it now; it takes the slot."""
        if not self._queue or not self._slots.free:
            return None
        call = self._queue.popleft()
        self._start(call)
        return call

    def _start(self, call: HeldCall) -> None:
        call.is_running = True
        self._slots.take()
