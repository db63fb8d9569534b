"""Subscriptions' decisions. Pure functions."""

from __future__ import annotations

from mcpfleet.contracts.sessions import MOST_STREAMS, ChangeSession, Session


def has_room(elsewhere: int, here: int, limit: int) -> bool:
    """Whether an edge may have so many streams of a partition.

    Args:
        elsewhere: those of the partition at the other edges that live.
        here: those at the edge that asks, the new one among them.
        limit: how many there may be.
    """
    return elsewhere + here <= limit


def changed(session: Session, change: ChangeSession, most_uris: int) -> Session | None:
    """What a session is after a change; the same change twice is one, and an older stream never becomes newer.

    Args:
        session: what it was.
        change: what is wanted.
        most_uris: how many a session may subscribe to.

    Returns:
        None where it has no room for what it subscribes to: then nothing of the change is done.
    """
    uris = tuple(uri for uri in session.uris if uri != change.unsubscribe)
    if change.subscribe is not None and change.subscribe not in uris:
        if len(uris) >= most_uris:
            return None
        uris = (*uris, change.subscribe)
    return session.model_copy(
        update={
            "log_level": session.log_level if change.log_level is None else change.log_level,
            "uris": uris,
            "streams": _streams(session.streams, change.opened, change.closed),
            "lists": session.lists if change.lists is None else change.lists,
        }
    )


def _streams(streams: tuple[str, ...], opened: str | None, closed: str | None) -> tuple[str, ...]:
    """The streams after one has opened and one is gone, the newest first; over the most the oldest is none (N10)."""
    if opened is not None and opened not in streams:
        streams = (opened, *streams)[:MOST_STREAMS]
    return tuple(stream for stream in streams if stream != closed)
