"""What an interceptor sees of a request, and the way through interceptors to the handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcpfleet.app.context import Context

InvocationKind = Literal["tool", "resource", "template", "prompt", "lister", "completion"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A request on its way to its handler. `dataclasses.replace` makes one with other arguments."""

    kind: InvocationKind
    name: str
    """The tool's or prompt's name, the resource's URI, the template, or the list's name."""
    arguments: dict[str, Any]
    """As they came: the handler's schema has not been looked at yet."""
    ctx: Context
    uri: str | None = None
    """What is read, of a resource or a template."""


CallNext = Callable[[Invocation], Awaitable[Any]]
"""Goes on to the next interceptor, or to the handler; answers with what the handler returned."""
Interceptor = Callable[[Invocation, CallNext], Awaitable[Any]]
"""Stands before and after every handler: returns what `call_next` returned, or something in its place."""


def through(interceptors: Sequence[Interceptor], invocation: Invocation, handler: CallNext) -> Awaitable[Any]:
    """Call the first interceptor, which calls the next, and the last one the handler."""
    inner = handler
    for interceptor in reversed(interceptors):
        inner = _around(interceptor, inner)
    return inner(invocation)


def _around(interceptor: Interceptor, inner: CallNext) -> CallNext:
    return lambda invocation: interceptor(invocation, inner)
