"""An operator's policy, as a test says it, and an application of a few items that it may hide."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from mcpfleet.app import App
from mcpfleet.authorization.policy import Allow, Caller, Filter, Item
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import TOKENS

_NOTHING: Mapping[str, str] = MappingProxyType({})
TARGET: Final = "tests.contract.fleet.policy_app:policy"


class Policy:
    """Each caller is a group of its own; `secret` items are bob's alone."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._asked: list[tuple[str, int]] = []
        """The questions to `visible`: groups, and how many items."""
        self._judged: list[tuple[str | None, str, Any]] = []
        self._visible: Callable[[str, set[Item]], Any] = self._by_name
        self._listen: Callable[[Caller, Filter], Any] = lambda _, wanted: Allow(wanted, 60)
        self._stream: Callable[[Caller, frozenset[str]], Any] = lambda _, families: Allow(families, 60)

    @staticmethod
    def _by_name(group: str, items: set[Item]) -> set[Item]:
        return {each for each in items if group == "bob" or "secret" not in each.name}

    def group(self, caller: Caller) -> str:
        """The caller's own name."""
        return caller.subject or "strangers"

    async def visible(self, group: str, items: set[Item]) -> Any:
        """What the test says."""
        self._asked.append((group, len(items)))
        return await _answer(self._visible(group, items))

    async def listen(self, caller: Caller, wanted: Filter) -> Any:
        """What the test says."""
        self._judged.append((caller.subject, "listen", wanted))
        return await _answer(self._listen(caller, wanted))

    async def stream(self, caller: Caller, families: frozenset[str]) -> Any:
        """What the test says."""
        self._judged.append((caller.subject, "stream", families))
        return await _answer(self._stream(caller, families))


async def _answer(answer: Any) -> Any:
    return await answer if hasattr(answer, "__await__") else answer


policy = Policy()


def shop() -> App:
    """An application with secrets."""
    app = App("shop", version="1.0.0")

    @app.tool()
    async def search() -> str:
        """Search."""
        return "found"

    @app.tool()
    async def secret_search() -> str:
        """Search what is secret."""
        return "found a secret"

    @app.prompt()
    async def secret_review(title: str) -> str:
        """A prompt."""
        return title

    @app.completion(secret_review, "title")
    async def titles(value: str) -> list[str]:
        return ["secret"]

    @app.resource("shop://secret")
    async def secret() -> str:
        return "secret"

    @app.resource("shop://open")
    async def open_shelf() -> str:
        return "open"

    return app


def fleet(app: App, environment: Mapping[str, str] = _NOTHING, **options: Any) -> LocalFleet:
    """A fleet under the policy, whose callers are ann and bob."""
    own = {
        "MCPFLEET_AUTHORIZATION": "static",
        "MCPFLEET_TOKENS": json.dumps(TOKENS),
        "MCPFLEET_POLICY": TARGET,
        **environment,
    }
    return LocalFleet(app, environment=own, **options)
