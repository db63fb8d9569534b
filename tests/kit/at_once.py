"""Runs coroutines that never wait, in tests that are no coroutines, and a sealer and rounds so."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from mcpfleet.edge.protocol.continuation import Continuation, Round
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.sealer import KeySealer, Sealer
from mcpfleet.edge.settings import EdgeSettings

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("it waits")


class SealingAtOnce:
    """A sealer by keys, which never waits."""

    def __init__(self, sealer: KeySealer) -> None:
        self.sealer = sealer
        self.path = sealer.path
        self.watch = sealer.watch

    def seal(self, content: Any, *, bound: bytes, lasts: float) -> str:
        """Seal."""
        return at_once(self.sealer.seal(content, bound=bound, lasts=lasts))

    def open(self, text: str, *, bound: bytes) -> Any:
        """Open."""
        return at_once(self.sealer.open(text, bound=bound))


class RoundsAtOnce:
    """Rounds whose sealer never waits."""

    def __init__(self, sealer: Sealer, settings: EdgeSettings) -> None:
        self._rounds = Continuation(sealer, settings)

    def begin(self, exchange: Exchange) -> Round:
        """Begin a round."""
        return at_once(self._rounds.begin(exchange))

    def ask(self, exchange: Exchange, before: Round, body: bytes) -> bytes:
        """Ask."""
        return at_once(self._rounds.ask(exchange, before, body))
