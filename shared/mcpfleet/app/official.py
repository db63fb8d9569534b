"""MCP's own results, as the official SDK has them: a handler that returns one has written its result itself (K22)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, get_args

from mcp_types import (
    CallToolResult,
    CompleteResult,
    CreateTaskResult,
    GetPromptResult,
    InputRequiredResult,
    ReadResourceResult,
    Result,
)

from mcpfleet.app.errors import OutputError
from mcpfleet.app.outcome import ABSENT, Outcome

_INSTEAD: Final[Mapping[type[Result], str]] = {
    InputRequiredResult: "ask with `ctx.elicit`, `ctx.sample`, `ctx.roots` or `ctx.ask`, and declare it by `asks`",
    CreateTaskResult: 'say task="required" or task="optional" in the declaration',
}
"""Results that are no end of a call, and how a handler does what they mean."""
_ENDS: Final = (CallToolResult, GetPromptResult, ReadResourceResult, CompleteResult)
"""Results that end a call of one kind of handler each."""
_COMPLETE: Final = "complete"


def refuse_foreign(value: Any, own: type[Result]) -> None:
    """Refuse a result that is not this kind of handler's, or no end of a call: as data it would be told as a success.

    Results that no handler gives, such as what a client answers, are data as any other model.

    Raises:
        OutputError: it is one.
    """
    if not isinstance(value, Result):
        return
    if isinstance(value, _ENDS) and not isinstance(value, own):
        raise OutputError(f"returned {type(value).__name__}, which is another kind of handler's: {own.__name__} is its")
    for kind, instead in _INSTEAD.items():
        if isinstance(value, kind):
            raise OutputError(f"returned {type(value).__name__}: {instead}")
    if getattr(value, "result_type", _COMPLETE) not in (None, _COMPLETE):
        raise OutputError(f"returned {type(value).__name__}, which says that it is not complete")


def ends_a_call(value: Any) -> bool:
    """Whether a value is a result that ends a call of some kind of handler."""
    return isinstance(value, _ENDS)


def outcome_of(value: Any) -> Any:
    """Make the outcome of a tool's own result; any other value stays what it is.

    Structured content that is None is none, as on the wire of the official SDK: an `Outcome` can say `null`.

    Raises:
        OutputError: it is a result of another kind, or no end of a call.
    """
    refuse_foreign(value, CallToolResult)
    if not isinstance(value, CallToolResult):
        return value
    structured = ABSENT if value.structured_content is None else value.structured_content
    meta = None if value.meta is None else dict(value.meta)
    return Outcome(tuple(value.content), structured, is_error=bool(value.is_error), meta=meta)


def speaks_of(annotation: Any, kind: type[Result]) -> bool:
    """Whether an annotation names a kind of result, itself or among others: then the value decides in each call."""
    if inspect.isclass(annotation) and issubclass(annotation, (kind, InputRequiredResult, CreateTaskResult)):
        return True
    return any(speaks_of(each, kind) for each in get_args(annotation))
