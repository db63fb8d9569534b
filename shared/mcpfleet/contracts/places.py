"""The places of a pool: which worker has the one connection of a key to a source (B16).

A lease is a worker's, and places are rows under it. A worker's every message renews its lease.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from mcpfleet.bus.rpc import Rpc
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.pool_tasks import ProcessId
from mcpfleet.contracts.tasks import Digest

LEASE: Final = 10.0
"""Seconds after a worker's newest message in which nobody else takes its places."""
MOST_PLACES: Final = 10_000
"""Places of a pool."""
MOST_FREED: Final = 1_000


class HeldPlace(Message):
    """One key's place."""

    key: Digest
    claim: Digest
    """Names this taking of it: an older message frees no newer one."""


class HoldPlaces(Message):
    """A worker lives. It may want another place, and free some."""

    worker: ProcessId
    take: HeldPlace | None = None
    free: tuple[HeldPlace, ...] = Field((), max_length=MOST_FREED, fail_fast=True)


class PlacesHeld(Message):
    """The worker's lease is renewed."""

    is_known: bool
    """Its lease had not ended. Otherwise none of its former places is its own any more."""
    holder: ProcessId | None = None
    """The worker that has the wanted place; None where none was wanted, or the pool has as many as may be."""


PLACE: Final = Rpc("subscriptions.place.{pool}", HoldPlaces, PlacesHeld, asked_by="pool-{pool}", repeat=True)


def handed_call_subject(pool: str, worker: str) -> str:
    """Return the subject of calls that another worker hands on to the one that has their place."""
    return f"process.pool.{pool}.{worker}.call"
