"""The processor's time that work takes, measured in parses, so that a slow or busy machine changes nothing.

A parse is `json.loads` of a fixed text, by the same thread and at the same moment. Time in which other threads run does
not count. The garbage collector is off: it would search all that the tests before this one have left.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_TEXT: Final = b"[" + b",".join([b"[]"] * 50_000) + b"]"


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector off for a block."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def seconds(work: Callable[[], object]) -> float:
    """Return the processor's seconds that this thread spends on work."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def parse() -> Any:
    """Do the work by which others are measured: a few milliseconds."""
    return json.loads(_TEXT)


def cost(work: Callable[[], object], *, tries: int = 3) -> float:
    """Return the parses that work costs at best."""
    return parses(lambda: seconds(work), tries=tries)


def parses(spend: Callable[[], float], *, tries: int = 3) -> float:
    """Return the parses that work costs at best, where it returns the processor's seconds that count."""
    best = unit = math.inf
    with uncollected():
        for _ in range(tries):
            unit = min(unit, seconds(parse))
            best = min(best, spend())
    return best / unit


def cost_of_longest_turn(work: Callable[[], Iterator[None]], *, tries: int = 2) -> float:
    """Return the parses that the longest turn costs at best, of work that yields between its turns."""
    best: list[float] = []
    unit = math.inf
    with uncollected():
        for _ in range(tries):
            unit = min(unit, seconds(parse))
            turns, began = list[float](), time.thread_time()
            for _ in work():
                turns.append(time.thread_time() - began)
                began = time.thread_time()
            turns.append(time.thread_time() - began)
            best = list(map(min, best, turns)) if best else turns
    return max(best) / unit
