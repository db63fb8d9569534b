"""MCP's own results, as the official SDK has them: a handler that returns one has written its result itself (K22)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, get_args

from mcp_types import CallToolResult, CreateTaskResult, InputRequiredResult, Result

from mcpfleet.app.errors import OutputError
from mcpfleet.app.outcome import ABSENT, Outcome

_INSTEAD: Final[Mapping[type[Result], str]] = {
    InputRequiredResult: "ask with `ctx.elicit`, `ctx.sample`, `ctx.roots` or `ctx.ask`, and declare it by `asks`",
    CreateTaskResult: 'say task="required" or task="optional" in the declaration',
}
"""Results that are no end of a call, and how a handler does what they mean."""
_COMPLETE: Final = "complete"


def refuse_no_end(value: Any) -> None:
    """Refuse a result that is no end of a call: as data it would be told as a success.

    Raises:
        OutputError: it is one.
    """
    if not isinstance(value, Result):
        return
    for kind, instead in _INSTEAD.items():
        if isinstance(value, kind):
            raise OutputError(f"returned {type(value).__name__}: {instead}")
    if getattr(value, "result_type", _COMPLETE) not in (None, _COMPLETE):
        raise OutputError(f"returned {type(value).__name__}, which says that it is not complete")


def outcome_of(value: Any) -> Any:
    """Make the outcome of a tool's own result; any other value stays what it is.

    Structured content that is None is none, as on the wire of the official SDK: an `Outcome` can say `null`.

    Raises:
        OutputError: it is a result, and no end of a call.
    """
    refuse_no_end(value)
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
