"""An application whose permit decides who reads: a test says whom it lets read what, and how it answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import httpx2

from mcpfleet.app import App, Caller, Context, Variables
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import TOKENS
from tests.unit.edge.asgi import MODERN, request

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Vault:
    """The application, whom its permit lets read, and what was asked and read."""

    def __init__(self) -> None:
        self.app = App("vault", version="1.0.0")
        self.readers: set[tuple[str | None, str]] = {("ann", "ann"), ("bob", "bob")}
        """Say who may read which account."""
        self.asked: list[tuple[str | None, tuple[str, ...]]] = []
        """The questions to the permit: by whom, and about whose accounts."""
        self.reads: Counter[tuple[str | None, str]] = Counter()
        self.answer: Callable[[Caller, list[Variables]], Any] = self.permitted
        """A test may let the permit answer otherwise."""
        self.completed = ["ann", "bob", "cid"]
        self.watched: list[frozenset[str]] = []
        account = self.app.resource("acct://accounts/{name}")(self.account)
        self.app.permit(account)(self.may_read)
        self.app.completion(account, "name")(self.complete)
        self.app.watched(self.watched.append)
        self.app.tool()(self.touch)

    def permitted(self, caller: Caller, asked: list[Variables]) -> list[bool]:
        """Answer by the readers."""
        return [(caller.subject, each["name"]) in self.readers for each in asked]

    async def may_read(self, caller: Caller, asked: list[Variables]) -> Any:
        """The permit."""
        self.asked.append((caller.subject, tuple(each["name"] for each in asked)))
        answer = self.answer(caller, asked)
        return await answer if hasattr(answer, "__await__") else answer

    async def account(self, name: str, ctx: Context) -> str:
        """An account."""
        self.reads[ctx.principal.subject, name] += 1
        return "money"

    async def complete(self, value: str) -> list[str]:
        """All names that begin so."""
        return [name for name in self.completed if name.startswith(value)]

    async def touch(self) -> str:
        """Do nothing."""
        return "touched"


def fleet(vault: Vault, environment: Mapping[str, str] = _NOTHING, **options: Any) -> LocalFleet:
    """A fleet whose callers are ann and bob."""
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS), **environment}
    return LocalFleet(vault.app, environment=own, **options)


async def post(
    http: httpx2.AsyncClient, token: str | None, method: str, params: Mapping[str, Any], name: str | None = None
) -> httpx2.Response:
    """Make a request of the newest revision, and return its whole response."""
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN, "mcp-method": method,
    }  # fmt: skip
    headers |= {"mcp-name": name} if name is not None else {}
    headers |= {"authorization": f"Bearer {token}"} if token is not None else {}
    return await http.post("/mcp", json=request(method, dict(params)), headers=headers, timeout=20)


async def read(http: httpx2.AsyncClient, token: str | None, uri: str) -> httpx2.Response:
    """Read a resource."""
    return await post(http, token, "resources/read", {"uri": uri}, uri)
