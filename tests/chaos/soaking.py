"""The frame of all soaks: measure what is held, use it for long, and compare what is held afterwards."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import anyio
import psutil
from rich.console import Console

_LOOK_AGAIN = 0.25
_STEADY = 1.0
_TURN = 60.0
"""Seconds after which what is held is looked at."""


class Held(Protocol):
    """The resources that may leak. Memory does not count in a comparison: it is never where it began."""

    @property
    def megabytes(self) -> float:
        """The memory of the process."""


Holdings = TypeVar("Holdings", bound=Held)


@dataclass(frozen=True)
class Findings(Generic[Holdings]):
    """The resources before and after."""

    before: Holdings
    after: Holdings
    ended: Counter[str]
    """How what was done ended, and how often."""
    megabytes: tuple[float, ...]
    """The memory after each minute: a leak grows in all of them, a buffer that was full once in one."""


@contextmanager
def small_heap() -> Iterator[None]:
    """Leave what lives already out of each look at the heap, for the length of a block: modules are most of it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def megabytes() -> float:
    """Return the memory of the process after a collection."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / 2**20)


async def soaked(
    use: Callable[[float], Awaitable[None]],
    settled: Callable[[Holdings | None], Awaitable[Holdings]],
    ended: Counter[str],
    *,
    seconds: float,
    warm: float,
) -> Findings[Holdings]:
    """Use something for so long, and compare.

    Args:
        use: uses it for so many seconds.
        settled: waits until what was there before is all that is held, or for its bound, and says what is.
        ended: what `use` counts.
        seconds: how long.
        warm: seconds before, for what is made once, and does not count as a leak.
    """
    await use(min(warm, seconds))
    before = await settled(None)
    found = []
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await use(min(_TURN, left))
        found.append((await settled(before)).megabytes)
    return Findings(before, await settled(before), ended, tuple(found))


async def settle(
    now: Callable[[], Awaitable[Holdings]], is_over: Callable[[Holdings], bool], *, within: float
) -> Holdings:
    """Look until it is over, for so many seconds at most; returns what is held then."""
    held = await now()
    with anyio.move_on_after(within):
        while not is_over(held):
            await anyio.sleep(_LOOK_AGAIN)
            held = await now()
    return held


async def steady(now: Callable[[], Awaitable[Holdings]], *, within: float) -> Holdings:
    """Look until it has been the same for a second, for so many seconds at most: what was begun comes to its end."""
    held, since = await now(), time.monotonic()
    with anyio.move_on_after(within):
        while time.monotonic() - since < _STEADY:
            await anyio.sleep(_LOOK_AGAIN)
            if (other := await now()) != held:
                held, since = other, time.monotonic()
    return held


def main(about: str | None, soak: Callable[[float, int], Awaitable[Findings[Any]]], *, minutes: float) -> None:
    """Run a soak's long form as the command line says, print it, and exit with 1 where something was left."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    found = anyio.run(soak, options.minutes * 60, options.seed)
    console = Console(width=140, highlight=False)
    for how, times in sorted(found.ended.items()):
        console.print(f"{times:9,}  {how}")
    console.print("MB after each minute: " + " ".join(f"{each:.0f}" for each in found.megabytes))
    console.print(f"before {found.before}\nafter  {found.after}")
    sys.exit(found.before != found.after)
