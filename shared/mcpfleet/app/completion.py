"""Completers: functions that offer values for an argument that a user is typing (M48)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_origin

import anyio
from mcp_types import CompleteResult, Completion

from mcpfleet.app.context import Context
from mcpfleet.app.errors import InvalidArguments, Mistake, OutputError, Problem
from mcpfleet.app.handler import Answer, CompletionRequest, Function, Handler
from mcpfleet.app.lifespan import Scope
from mcpfleet.app.outcome import refuse_foreign
from mcpfleet.app.schema import MISSING
from mcpfleet.app.signature import read_signature
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import MOST_WORDS, Definition

MOST_VALUES: Final = 100
"""Values of one answer (M48)."""


class Completer:
    """A function that completes one argument.

    Its first parameter takes the typed text. A second one, a `dict[str, str]`, takes the settled arguments. A parameter
    annotated with `Context` takes the call.

    Raises:
        Mistake: it takes other parameters.
    """

    def __init__(self, handler: Callable[..., Any]) -> None:
        signature = read_signature(handler)
        if not 1 <= len(signature.parameters) <= 2:
            raise Mistake("a completer takes the typed text, and perhaps the settled arguments as `dict[str, str]`")
        self._value, *others = (parameter.name for parameter in signature.parameters)
        if signature.parameters[0].annotation not in (str, MISSING):
            raise Mistake("takes the typed text: annotate it with `str`", self._value)
        self._settled = others[0] if others else None
        if self._settled is not None and not _is_mapping(signature.parameters[1].annotation):
            raise Mistake("takes the settled arguments: annotate it with `dict[str, str]`", self._settled)
        self._function = Function(handler, signature)

    @property
    def site(self) -> Site:
        """The function."""
        return self._function.site

    def declare_in(self, scope: Scope) -> None:
        """Tell where it is declared."""
        self._function.scope = scope

    async def complete(
        self, request: CompletionRequest, ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> dict[str, Any] | Answer:
        """Offer values.

        Returns:
            The members of `completion`: at most `MOST_VALUES` values, and whether there are more. Or the whole answer,
                if the function returned the result itself.

        Raises:
            OutputError: the function returned something else than a list of texts.
        """
        values: dict[str, Any] = {self._value: request.value}
        if self._settled is not None:
            values[self._settled] = dict(request.context)
        value = await self._function.start(values, ctx, threads)
        refuse_foreign(value, CompleteResult)
        if isinstance(value, CompleteResult):
            return Answer({"completion": _members(value.completion)}, value.meta)
        return _members(value)


class Completes(Handler):
    """A handler whose arguments may have completers."""

    _completers: dict[str, Completer]

    @property
    def _completable(self) -> tuple[str, ...]:
        """The arguments that may have one."""
        raise NotImplementedError

    def complete_with(self, argument: str, completer: Completer) -> None:
        """Let a function complete an argument: from now on the definition names it, and so has another digest.

        Raises:
            Mistake: there is no such argument, or it has a completer.
        """
        if argument not in self._completable:
            known = ", ".join(map(repr, self._completable)) or "none"
            raise Mistake(f"{self.definition.name!r} has no argument {argument!r} to complete; it has {known}")
        if argument in self._completers:
            raise Mistake(f"{argument!r} is completed by {self._completers[argument].site} already")
        if len(self._completers) >= MOST_WORDS:
            raise Mistake(f"at most {MOST_WORDS} arguments have completers")
        self._completers[argument] = completer
        members = self.definition.model_dump() | {"completes": tuple(sorted(self._completers))}
        self.definition = Definition(**members)  # a new one, since the text and digest of the old one are cached

    def _complete(
        self, request: CompletionRequest, ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        completer = self._completers.get(request.argument)
        if completer is None:
            raise InvalidArguments([Problem("", "the argument has no completions")])
        return completer.complete(request, ctx, threads)


def completed(value: Any) -> Answer:
    """Return the answer for a completer's offer."""
    return value if isinstance(value, Answer) else Answer({"completion": value})


def _is_mapping(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    return inspect.isclass(kind) and issubclass(kind, Mapping)


def _members(value: Any) -> dict[str, Any]:
    made = value if isinstance(value, Completion) else None
    values = list(made.values if made is not None else value or ())
    if not all(isinstance(each, str) for each in values) or isinstance(value, str):
        raise OutputError("a completer returned no list of texts")
    total = made.total if made is not None else None
    has_more = made.has_more if made is not None else None
    if len(values) > MOST_VALUES:
        total, has_more = max(total or 0, len(values)), True
    members: dict[str, Any] = {"values": values[:MOST_VALUES]}
    return members | ({} if total is None else {"total": total}) | ({} if has_more is None else {"hasMore": has_more})
