"""Subscriptions' decisions. Pure functions."""

from __future__ import annotations


def has_room(elsewhere: int, here: int, limit: int) -> bool:
    """Whether an edge may have so many streams of a partition.

    Args:
        elsewhere: those of the partition at the other edges that live.
        here: those at the edge that asks, the new one among them.
        limit: how many there may be.
    """
    return elsewhere + here <= limit
