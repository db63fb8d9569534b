"""The messages of the operator's policy: edges ask authorization what a group sees, and who may have which stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN, Kind
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.batches import Batches
from mcpfleet.telemetry.trace import is_recorded

MOST_ITEMS: Final = 1_000
"""Items of one question to `visible` (X48)."""
MOST_STREAMS: Final = 32
"""Streams of one question."""
_FEW: Final = 32
"""A stream of more URIs and tasks is asked about alone, so that no message is too large."""
_PATIENCE: Final = 0.005
"""Seconds that a question waits for the one before it at most, to go with others."""

Judging = Literal["listen", "stream"]
"""The methods of a policy that judge streams: those of `subscriptions/listen`, and the GET streams of 2025."""


class ItemShown(Message):
    """An item of a snapshot, about which a policy is asked."""

    kind: Kind
    name: str
    pool: str = Field(pattern=POOL_PATTERN)
    scopes: tuple[str, ...] = ()


class VisibleWanted(Message):
    """An edge asks which items of a snapshot a group sees."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    snapshot: int
    group: str
    items: tuple[ItemShown, ...] = Field(max_length=MOST_ITEMS, fail_fast=True)


class Visible(Message):
    """The items that the group sees. An empty answer shows nothing."""

    places: tuple[int, ...] = ()
    """The places of the visible items in the question."""
    hides_nothing: bool = False
    """The policy has no `visible`."""
    number: int = 0
    """The newest revocation, or change of policy, that the answer includes."""


class StreamAsked(Message):
    """A stream that a caller wants."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    principal: Principal
    judging: Judging = "listen"
    lists: tuple[str, ...] = ()
    """The kinds of lists; for `stream` the families, which may have `updates`, too."""
    uris: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    own: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The keys of own notifications, by the fields of the filter."""


class StreamsAsked(Message):
    """An edge asks about some streams, each as if by itself."""

    streams: tuple[StreamAsked, ...] = Field(max_length=MOST_STREAMS)


class StreamJudged(Message):
    """The policy's answer about a stream. An empty one decides nothing."""

    outcome: Literal["allowed", "denied", "undecided"] = "undecided"
    lists: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    own: tuple[tuple[str, tuple[str, ...]], ...] = ()
    seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Seconds from the asking for which the stream may go on without another answer."""
    number: int = 0
    """As that of `Visible`."""


class StreamsJudged(Message):
    """The answers, in the order of the streams."""

    streams: tuple[StreamJudged, ...] = ()


VISIBLE = Rpc("authorization.visible", VisibleWanted, Visible, asked_by="edge", repeat=True)
JUDGE = Rpc("authorization.judge", StreamsAsked, StreamsJudged, asked_by="edge", repeat=True)


class PolicyClient:
    """Asks authorization for edges; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 6.0) -> None:
        self._bus = bus
        self._timeout = timeout
        self._together: Batches[StreamAsked, StreamJudged] = Batches(
            self._judge_all, MOST_STREAMS, spoils=BusError, patience=_PATIENCE
        )

    async def visible(self, wanted: VisibleWanted) -> Visible:
        """Return what a group sees of some items."""
        return await ask(self._bus, VISIBLE, wanted, timeout=self._timeout)

    async def judge(self, stream: StreamAsked) -> StreamJudged:
        """Return the policy's answer about a stream, in one question with other streams of the same moment."""
        if is_recorded() or len(stream.uris) + len(stream.tasks) + sum(len(keys) for _, keys in stream.own) > _FEW:
            return (await self._judge_all([stream]))[0]
        return await self._together.do(stream)

    async def _judge_all(self, streams: Sequence[StreamAsked]) -> list[StreamJudged]:
        told = await ask(self._bus, JUDGE, StreamsAsked(streams=tuple(streams)), timeout=self._timeout)
        answers = list(told.streams[: len(streams)])
        return answers + [StreamJudged()] * (len(streams) - len(answers))
