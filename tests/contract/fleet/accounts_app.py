"""An application whose handler decides who reads: each account is its owner's, and of those whom a test lets read."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import anyio

from mcpfleet.app import App, Context
from mcpfleet.testing.local import LocalFleet
from tests.kit.refusals import refuse

ANN, BOB = "secret-of-ann", "secret-of-bob"
TOKENS: Final = {
    "tokens": [
        {"token": ANN, "subject": "ann", "audience": "mcp"},
        {"token": BOB, "subject": "bob", "audience": "mcp"},
    ]
}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def account_of(name: str) -> str:
    """The URI of somebody's account."""
    return f"acct://accounts/{name}"


ANNS, BOBS = account_of("ann"), account_of("bob")


class Bank:
    """The application, whom it lets read, and what was read."""

    def __init__(self) -> None:
        self.app = App("bank", version="1.0.0")
        self.reads: Counter[tuple[str | None, str]] = Counter()
        """By the caller's subject and the account's name."""
        self.readers: set[tuple[str, str]] = {("ann", "ann"), ("bob", "bob")}
        self.held: set[str] = set()
        """Names of accounts whose reading waits."""
        self.began = threading.Event()
        """A reading waits."""
        self.running = 0
        self.most = 0
        """Readings that ran at once."""
        self.cancelled = 0
        self.app.resource("acct://accounts/{name}")(self.account)
        self.app.resource("refused://{how}")(self.refused)
        self.app.resource("public://{number}")(self.public)
        self.app.tool()(self.touch)

    async def account(self, name: str, ctx: Context) -> str | None:
        """An account."""
        subject = ctx.principal.subject
        self.reads[subject, name] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while name in self.held:  # who releases is on another thread
                self.began.set()
                await anyio.sleep(0.005)
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return "money" if subject is not None and (subject, name) in self.readers else None

    async def refused(self, how: str) -> None:
        """A resource that nobody may read."""
        self.reads[None, how] += 1
        refuse(how, "refused://found")

    async def public(self, number: int) -> str:
        """A resource that everybody may read."""
        self.reads[None, str(number)] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.sleep(0.01)
        self.running -= 1
        return "open"

    async def touch(self, uri: str, ctx: Context) -> str:
        """Say that something has changed."""
        await ctx.resource_updated(uri)
        return "touched"


def fleet(bank: Bank, environment: Mapping[str, str] = _NOTHING, **options: Any) -> LocalFleet:
    """A fleet whose callers are ann and bob."""
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS), **environment}
    return LocalFleet(bank.app, environment=own, **options)
