"""The closed list of error kinds that cross the bus; the edge alone maps them to JSON-RPC and HTTP."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Why a receiver that had the message could not do what it asks."""

    CONTRACT = "contract"
    """The message breaks its contract: a field and a rule are named, never the value."""
    UNKNOWN = "unknown"
    """What it names does not exist, or not for this sender."""
    REFUSED = "refused"
    """A rule of the receiver forbids it."""
    UNAVAILABLE = "unavailable"
    """The receiver's own store or upstream does not answer."""
    TOO_LARGE = "too_large"
    """The answer is larger than a message may be."""
    INTERNAL = "internal"
    """A mistake of ours; the receiver's log has it."""
