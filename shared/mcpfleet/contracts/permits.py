"""The messages of permits: edges ask a pool who may read what, and a pool tells that its permits decide otherwise now.

A permit is a function of an application that decides about reads without reading, or about keys of its own
notifications (X50).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.principal import Principal

MOST_ASKED: Final = 256
"""URIs of one question, and of one hint."""


class AskedByCaller(Message):
    """The URIs about which an edge asks for one caller; for a notification of an own extension its keys."""

    principal: Principal = Principal()
    uris: tuple[str, ...] = Field(max_length=MOST_ASKED)


class PermitsWanted(Message):
    """An edge asks whether callers may read URIs of one definition."""

    callers: tuple[AskedByCaller, ...] = Field(max_length=MOST_ASKED)


class Permitted(Message):
    """The answers."""

    callers: tuple[tuple[bool, ...] | None, ...] = ()
    """In the order of the callers and of their URIs; None for a caller about whom the permit said nothing."""


class PermitsChanged(Message):
    """The hint on `hint.permits.{pool}`: the pool's permits may decide otherwise than before; it is repeated."""

    worker: str
    """The process that tells it; each counts its own changes."""
    number: int = Field(ge=0)
    """Rises with each change: microseconds since 1970, and at least one more than before."""
    uris: tuple[str, ...] = Field((), max_length=MOST_ASKED)
    """The concerned URIs; none for all of the pool's."""
    since: int = 0
    """The number before: who has not heard of that one takes all URIs."""


PERMIT = Rpc("pool.{pool}.{definition}.permit", PermitsWanted, Permitted, asked_by="edge", repeat=True)


def permits_hint_subject(pool: str) -> str:
    """Return the subject of a pool's hint; `*` hears those of all pools."""
    return f"hint.permits.{pool}"


async def ask_permits(
    bus: Bus, pool: str, definition: str, callers: Sequence[AskedByCaller], *, timeout: float
) -> list[tuple[bool, ...] | None]:
    """Ask a pool's permit about callers, at most `MOST_ASKED` URIs in all; raises `BusError`.

    Returns:
        For each caller an answer for each URI; None where there is none.
    """
    wanted = PermitsWanted(callers=tuple(callers))
    told = await ask(bus, PERMIT, wanted, timeout=timeout, pool=pool, definition=definition)
    answers: list[tuple[bool, ...] | None] = [*told.callers[: len(callers)]]
    answers += [None] * (len(callers) - len(answers))
    sizes = [len(caller.uris) for caller in callers]
    return [
        answer if answer is not None and len(answer) == size else None
        for answer, size in zip(answers, sizes, strict=True)
    ]
