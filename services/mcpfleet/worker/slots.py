"""The slots of a worker: each call and each task that runs takes one."""

from __future__ import annotations

from collections.abc import Callable

from mcpfleet.telemetry.instruments import WorkerInstruments


def _nothing() -> None:
    pass


class Slots:
    """Counts the slots in use, for calls and tasks alike. It lives on the bus's loop."""

    def __init__(self, most: int, instruments: WorkerInstruments) -> None:
        """Have all slots free.

        Args:
            most: how many there are.
            instruments: where they are counted.
        """
        self._most = most
        self._used = 0
        self._gauge = instruments.slots_used
        instruments.slots.set(most)
        self.is_blocked = False
        """A handler holds the handlers' loop: nothing that is taken now can start."""
        self.on_free: Callable[[], None] = _nothing
        """Called when a slot becomes free: the call that waits longest takes it."""

    @property
    def used(self) -> int:
        """Slots in use; above the number of slots if calls arrive while tasks are claimed."""
        return self._used

    @property
    def free(self) -> int:
        """Slots that nothing runs in."""
        return max(0, self._most - self._used)

    def take(self) -> None:
        """Take a slot."""
        self._used += 1
        self._gauge.set(self._used)

    def give_back(self) -> None:
        """Free a slot."""
        self._used -= 1
        self._gauge.set(self._used)
        self.on_free()
