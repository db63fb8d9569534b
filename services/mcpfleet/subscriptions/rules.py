"""Subscriptions' decisions. Pure functions."""

from __future__ import annotations

from mcpfleet.contracts.sessions import MOST_STREAMS, TOLD, ChangeSession, Session


def has_room(elsewhere: int, here: int, limit: int) -> bool:
    """Whether an edge may have this many streams of a partition.

    Args:
        elsewhere: the partition's streams at the other live edges.
        here: its streams at the asking edge, including the new one.
        limit: how many it may have together.
    """
    return elsewhere + here <= limit


def changed(session: Session, change: ChangeSession, most_uris: int) -> Session | None:
    """Apply a change to a session. The same change twice counts once, and an older stream never becomes the newest.

    Args:
        session: the session before.
        change: the change.
        most_uris: how many URIs a session may subscribe to.

    Returns:
        The session afterwards. None where it would subscribe to too many URIs; then nothing is changed.
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
            "streams": _streams(session.streams, change.opened, {change.closed, change.lost}),
            "lists": session.lists if change.lists is None else _lists(session.lists or {}, change.lists),
        }
    )


def _streams(streams: tuple[str, ...], opened: str | None, closed: set[str | None]) -> tuple[str, ...]:
    """The streams after one opened and one closed, the newest first; beyond the bound the oldest is dropped (N10)."""
    if opened is not None and opened not in streams:
        streams = (opened, *streams)[:MOST_STREAMS]
    return tuple(stream for stream in streams if stream not in closed)


def _lists(known: dict[str, str], told: dict[str, str]) -> dict[str, str]:
    """The digests that the client may know, after news of some. A list that was read since it was told stays known."""
    return {**known, **{kind: digest for kind, digest in told.items() if digest != known.get(kind, "") + TOLD}}
