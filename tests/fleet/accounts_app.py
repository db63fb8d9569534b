"""Accounts that their owners read, and others by a file: what a test does to a folder is what the handler goes by."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from mcpfleet.app import App, Context

FOLDER = Path(os.environ["ACCOUNTS_FOLDER"])
"""`{reader}-{name}` lets a reader read an account, `hold-{name}` holds its readings up; `reads` lists them."""
app = App("accounts", version="1.0.0")


@app.resource("acct://accounts/{name}")
async def account(name: str, ctx: Context) -> str | None:
    """An account."""
    reader = ctx.principal.subject
    with (FOLDER / "reads").open("a") as reads:
        reads.write(f"{reader} {name}\n")
    while (FOLDER / f"hold-{name}").exists():  # noqa: ASYNC110  # a test's folder has no event
        await anyio.sleep(0.05)
    return "money" if (FOLDER / f"{reader}-{name}").exists() else None
