"""What of a Context must be awaited, as blocking calls: for handlers that are plain functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import anyio.from_thread
from mcp_types import CreateMessageResultWithTools, LoggingLevel, Root

from mcpfleet.app import question
from mcpfleet.app.asking import Question

if TYPE_CHECKING:  # it makes one of these
    from mcpfleet.app.context import Context

Filled = TypeVar("Filled")
Result = TypeVar("Result")


class SyncContext:
    """What of a Context must be awaited, for handlers that run in a thread: each call blocks until it is done."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is, as `Context.progress` does.

        Raises:
            ProgressError: the value or the total is not finite, or the value is less than before.
            RuntimeError: the thread is not one that runs a handler.
        """
        anyio.from_thread.run(self._context.progress, value, total, message)

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Tell the client's log, as `Context.log` does."""
        anyio.from_thread.run(self._context.log, level, data, logger)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource, as `Context.resource_updated` does."""
        anyio.from_thread.run(self._context.resource_updated, uri)

    def resources_changed(self) -> None:
        """Tell the clients that listen to lists, as `Context.resources_changed` does."""
        anyio.from_thread.run(self._context.resources_changed)

    def defer(self) -> None:
        """Make a durable task of the call, as `Context.defer` does."""
        anyio.from_thread.run(self._context.defer)

    def can_ask(self, name: str) -> bool:
        """Whether the client can answer `name`, and the declaration names it."""
        return self._context.can_ask(name)

    @overload
    def elicit(self, message: str, wanted: type[Filled], *, key: str | None = None) -> Filled: ...
    @overload
    def elicit(self, message: str, wanted: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...
    def elicit(self, message: str, wanted: Any, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, as `Context.elicit` does."""
        (answer,) = self.ask(question.form(message, wanted, key=key))
        return answer

    def elicit_url(self, message: str, address: str, *, key: str | None = None) -> None:
        """Ask the user to open a page, as `Context.elicit_url` does."""
        self.ask(question.url(message, address, key=key))

    def sample(
        self, messages: question.Messages, *, max_tokens: int, key: str | None = None,
        **told: Unpack[question.Sampling],
    ) -> CreateMessageResultWithTools:  # fmt: skip
        """Ask the client's model to go on with a conversation, as `Context.sample` does."""
        (answer,) = self.ask(question.sample(messages, max_tokens=max_tokens, key=key, **told))
        result: CreateMessageResultWithTools = answer
        return result

    def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for what the user has opened to servers, as `Context.roots` does."""
        (answer,) = self.ask(question.roots(key=key))
        result: list[Root] = answer
        return result

    def ask(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several things at once, as `Context.ask` does."""
        return anyio.from_thread.run(self._context.ask, *questions)

    def step(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Do work once, as `Context.step` does."""
        result: Result = anyio.from_thread.run(functools.partial(self._context.step, name, function), *arguments)
        return result
