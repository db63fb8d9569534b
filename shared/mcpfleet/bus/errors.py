"""The ways in which a request or a message on the bus can fail."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Why a receiver could not do what a message asks."""

    CONTRACT = "contract"
    """The message breaks its contract; the text names the field and the rule, never the value."""
    UNKNOWN = "unknown"
    """The named thing does not exist, or not for this sender."""
    REFUSED = "refused"
    """A rule of the receiver forbids it."""
    UNAVAILABLE = "unavailable"
    """The receiver's own store or upstream does not answer."""
    TOO_LARGE = "too_large"
    """The answer is larger than a message may be."""
    INTERNAL = "internal"
    """A mistake of ours; the log of the receiver has the details."""


class BusError(Exception):
    """Raised when a message could not do its work; the base of all errors of this package."""


class NotRun(BusError):
    """Raised when a request has not run and never will: asking again is safe."""


class Unavailable(NotRun):
    """Raised when the link to NATS is down, or its buffer is full: nothing was sent."""


class NoResponders(NotRun):
    """Raised when NATS knew of no process that hears the subject."""


class Busy(NotRun):
    """Raised when the process that received the request had no room for it."""


class Expired(NotRun):
    """Raised when the request was too old, or dated ahead, by the receiver's clock.

    Attributes:
        skew: seconds by which the receiver's clock is ahead of ours, as far as the answer tells.
    """

    def __init__(self, subject: str, skew: float) -> None:
        super().__init__(f"{subject}: expired; the receiver's clock differs by {skew:+.1f} s")
        self.skew = skew


class Refused(NotRun):
    """Raised when NATS does not permit this process's user to use the subject."""

    def __init__(self, subject: str, what: str) -> None:
        super().__init__(
            f"NATS refused to let this user {what} {subject!r}: "
            "compare its permissions with the output of `mcpfleet nats` (MCPFLEET_NATS_USER)"
        )
        self.subject = subject


class TooLarge(NotRun):
    """Raised when a message is larger than its named limit; it is never tried again.

    Attributes:
        setting: the environment variable that holds the limit.
    """

    def __init__(self, what: str, size: int, limit: int, setting: str) -> None:
        super().__init__(f"{what} of {size} bytes is over the limit of {limit} bytes ({setting})")
        self.setting = setting


class Unanswered(BusError):
    """Raised when the request was sent, and the time or the link ended first: it may have run."""


class UnreadableAnswer(BusError):
    """Raised when the answer has a form that this process does not know: the receiver may have done its work."""


class Failed(BusError):
    """Raised when the receiver answered with an error of the closed list of kinds (`Fault`).

    Attributes:
        kind: one of `Fault`'s values, or the unknown kind of a newer process.
        is_undone: the receiver states that nothing was changed. False states nothing.
    """

    def __init__(self, kind: str, message: str, *, is_undone: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_undone = is_undone


_DECISIONS: Final = frozenset({Fault.CONTRACT, Fault.UNKNOWN, Fault.REFUSED, Fault.TOO_LARGE})
"""Kinds that a repeat of the same request would get again."""


def is_undone(error: BusError) -> bool:
    """Return whether a failed request has certainly changed nothing; otherwise that is open (K24)."""
    if isinstance(error, Failed):
        return error.is_undone or error.kind in _DECISIONS
    return isinstance(error, NotRun)
