"""Shared by tests of the authors' interface: declares a function as a tool, and calls it."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context, Outcome, Tool

Handler = Callable[..., Any]


@pytest.fixture
def declare() -> Callable[..., Tool]:
    """Declare a function, with `App.tool`'s options, as the one tool of a new App."""

    def declare(handler: Handler, **options: Any) -> Tool:
        app = App("test", version="1")
        app.tool(**options)(handler)
        (tool,) = app.tools.values()
        return tool

    return declare


@pytest.fixture
def call(declare: Callable[..., Tool]) -> Callable[..., Awaitable[Outcome]]:
    """Declare a function likewise, and call it once."""

    async def call(
        handler: Handler, arguments: dict[str, Any] | None = None, ctx: Context | None = None, **options: Any
    ) -> Outcome:
        tool = declare(handler, **options)
        return await tool.call(arguments or {}, ctx or Context(), threads=anyio.CapacityLimiter(2))

    return call
