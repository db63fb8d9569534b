"""The application of the chaos programs: a tool whose effects are counted, apart from what its callers are told."""

import os
import time
from pathlib import Path

import anyio

from mcpfleet.app import App

app = App("chaos", version="1.0.0")
EFFECTS = Path(os.environ["CHAOS_EFFECTS"])
RELEASED = EFFECTS.with_name("released")
"""A file whose appearance lets go of a handler that blocks."""


def note(token: str) -> None:
    """Add a line, whole, to the file that all workers share."""
    with EFFECTS.open("a") as effects:
        effects.write(f"{token} {time.time():.3f}\n")


@app.tool()
async def effect(token: str) -> str:
    """Have an effect that lasts: a line in a file."""
    await anyio.sleep(0.01)
    note(token)
    return token


@app.tool()
async def linger(seconds: float) -> str:
    """Take a while."""
    await anyio.sleep(seconds)
    return "done"


@app.tool()
async def block(seconds: float) -> str:
    """Hold the handlers' loop, as a careless handler does, for so long and until it is let go."""
    until = time.monotonic() + seconds
    while time.monotonic() < until or not RELEASED.exists():
        time.sleep(0.01)  # noqa: ASYNC251  # that is the point
    return "done"


@app.tool()
def burn(seconds: float) -> int:
    """Compute in a thread."""
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    return turns
