"""The application of the tests of repeated calls: it notes each effect in a file, and answers late, at a gate."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from mcpfleet.app import App

app = App("desk", version="1")
NOTES = Path(os.environ.get("KEYED_NOTES", os.devnull))


def note(what: str) -> None:
    """Append a line, which is whole whichever process dies."""
    with NOTES.open("a") as notes:
        notes.write(f"{what} {os.getpid()}\n")


async def answered(what: str) -> str:
    """Have the effect, and answer once the gate is open."""
    note(what)
    while not NOTES.with_name("gate").exists():  # noqa: ASYNC110  # who opens it is another process
        await anyio.sleep(0.02)
    return f"done: {what}"


@app.tool(idempotency_key="request")
async def place(book: int, request: str) -> str:
    """Place a hold, under a key among the arguments."""
    return await answered(f"{request} {book}")


@app.tool(idempotency_key=True)
async def remove(book: int) -> str:
    """Remove a hold, under a key beside the arguments."""
    return await answered(f"remove {book}")


@app.tool()
async def ping() -> str:
    """Answer at once."""
    return "pong"
