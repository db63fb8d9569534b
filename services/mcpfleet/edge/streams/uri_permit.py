"""The state of one caller and one URI: the last decision, and the check that makes the next one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import anyio

from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OwnChange
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.calls.permit_check import Decision, ReadQuestion
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.process.events import GrantBegan, GrantEnded
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.views.view import Target


class PermitOf(NamedTuple):
    """A definition whose permit is asked."""

    pool: str
    definition: str


class ReadChecker(Protocol):
    """Decides whether callers may read: by the resource's handler, or by other means."""

    def find(self, question: ReadQuestion) -> Target | None:
        """Return the target that serves a URI to a caller now; None where there is none; raise `Undecided`."""

    async def ask(self, question: ReadQuestion, *, counts: bool) -> Decision:
        """Decide whether a caller may read a URI; raise `Undecided`."""

    async def ask_permit(self, listed: Listed, questions: Sequence[ReadQuestion]) -> list[Decision | None]:
        """Decide by the permit of a definition; None where it gave no answer."""


@dataclass(slots=True, eq=False)
class CallerPermits:
    """One caller at one endpoint, with all its permits."""

    key: tuple[str, Principal]
    permits: dict[str | OwnChange, UriPermit] = field(default_factory=dict)
    """By URIs, and by keys of own notifications."""


@dataclass(slots=True, eq=False)
class UriPermit:
    """Whether a caller may receive changes of a URI, or of a key of an own notification."""

    caller: CallerPermits
    uri: str | OwnChange
    streams: set[Stream] = field(default_factory=set)
    """The caller's streams that watch the URI."""
    is_granted: bool = False
    """The caller may read, and some stream of it watches the URI: so metrics count it."""
    may_read: bool | None = None
    """The last decision; None before the first."""
    definition: str | None = None
    """The digest of the definition that decided."""
    until: float = -math.inf
    """Monotonic seconds until which the decision holds."""
    has_change: bool = False
    """A change waits for the decision."""
    catalog: int = -1
    """The endpoint's snapshot at which the definition was last found unchanged."""
    generation: int = 0
    """Rises when rights may have ended: a check that began before does not count."""
    pool: str | None = None
    """The pool that the current check asks; None without a check."""
    outcome: anyio.Event | None = None
    """Set when the current check has ended."""
    awaited: int = 0
    """Requests that wait for the decision."""
    counts: bool = False
    """The check counts against the caller's rate of requests, since a request or a change waits for it."""
    retry_at: float = -math.inf
    """Monotonic seconds at which a failed check may be repeated."""
    failures: int = 0
    """Failed checks in a row."""
    served_by: str | None = None
    """The pool that serves the URI, as far as it was asked."""
    by_permit: bool = False
    """The pool's permit decides, and no reading."""

    @property
    def name(self) -> str:
        """Names the changes in streams."""
        return self.uri.text if isinstance(self.uri, OwnChange) else self.uri

    @property
    def principal(self) -> Principal:
        """The caller."""
        return self.caller.key[1]

    @property
    def question(self) -> ReadQuestion:
        """The question of its check."""
        return ReadQuestion(*self.caller.key, self.uri)

    @property
    def is_refused(self) -> bool:
        """Whether the caller's view has the resource, and it refuses reads. A missing resource may come later (T12)."""
        return self.may_read is False and self.definition is not None

    def has_ended(self, definition: str) -> bool:
        """Whether the definition's permit has refused: its streams hear no more of the URI (X51)."""
        return self.by_permit and self.may_read is False and self.definition == definition


class GrantRecord:
    """Counts callers' rights to changes of URIs as they begin and end, and tells observers (X69, X70)."""

    def __init__(self, instruments: StreamInstruments, observers: Observers) -> None:
        self._instruments = instruments
        self._observers = observers

    def note(self, permit: UriPermit) -> None:
        """Look whether a permit has become such a right, or is one no more."""
        is_granted = permit.may_read is True and bool(permit.streams)
        if is_granted is permit.is_granted:
            return
        permit.is_granted = is_granted
        endpoint, reason = permit.caller.key[0], "refused" if permit.streams else "unwatched"
        self._instruments.grants.add(1 if is_granted else -1)
        if not is_granted:
            self._instruments.grants_ended.add(1, reason)
        if self._observers.is_on and is_granted:
            self._observers.tell(GrantBegan, endpoint, permit.name)
        elif self._observers.is_on:
            self._observers.tell(GrantEnded, endpoint, permit.name, reason)
