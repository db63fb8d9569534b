"""The outcome of a tool call: its own form, MCP's own results, and the form that a task keeps for a sanitizer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, get_args

from mcp_types import (
    CallToolResult,
    CompleteResult,
    ContentBlock,
    CreateTaskResult,
    GetPromptResult,
    InputRequiredResult,
    ReadResourceResult,
    Result,
    TextContent,
)

from mcpfleet.app.errors import OutputError
from mcpfleet.contracts.task_payloads import Shape


class _Absent(Enum):
    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent.ABSENT
"""No structured content, which is not the same as `null` (M38)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call, as far as the application decides it.

    A handler may return one itself to give both content and data, for example an image and its measures.
    """

    content: Sequence[ContentBlock] = ()
    """For the model. If it is empty, the structured content is repeated here as JSON text."""
    structured: Any = ABSENT
    """Any JSON value, or a value that pydantic makes one of; checked by the output schema, if there is one."""
    is_error: bool = False
    """The model should read it as a failure; such a result may break the output schema (M39)."""
    meta: Mapping[str, Any] | None = None
    """Further members of the result's `_meta`."""

    @classmethod
    def failed(cls, text: str) -> Outcome:
        """Return a failure that the model should read."""
        return cls((TextContent(text=text),), is_error=True)

    def cleaned(self, clean: Callable[[str], str]) -> Outcome:
        """Return the same with its texts cleaned; itself, if that changes none."""
        blocks = [_cleaned(block, clean) for block in self.content]
        is_changed = any(new is not old for new, old in zip(blocks, self.content, strict=True))
        return replace(self, content=tuple(blocks)) if is_changed else self

    def fields(self) -> dict[str, Any]:
        """Return the members of the result on the wire, without `_meta` and `resultType`; null stays (M38)."""
        fields: dict[str, Any] = {
            "content": [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in self.content],
            "isError": self.is_error,
        }
        if self.structured is not ABSENT:
            fields["structuredContent"] = self.structured
        return fields


def _cleaned(block: ContentBlock, clean: Callable[[str], str]) -> ContentBlock:
    if not isinstance(block, TextContent) or (text := clean(block.text)) == block.text:
        return block
    return block.model_copy(update={"text": text})


@dataclass(frozen=True, slots=True)
class Kept:
    """A result that the output schema has checked, and no sanitizer."""

    outcome: Outcome
    shape: Shape

    @property
    def is_error(self) -> bool:
        """Whether a model should read it as a failure."""
        return self.outcome.is_error

    def fields(self) -> dict[str, Any]:
        """Return the members of the result as it was returned."""
        return self.outcome.fields()


_INSTEAD: Final[Mapping[type[Result], str]] = {
    InputRequiredResult: "ask with `ctx.elicit`, `ctx.sample`, `ctx.roots` or `ctx.ask`, and declare it by `asks`",
    CreateTaskResult: 'say task="required" or task="optional" in the declaration',
}
"""Results that end no call, and what a handler does instead."""
_ENDS: Final = (CallToolResult, GetPromptResult, ReadResourceResult, CompleteResult)
"""Results that end a call of one kind of handler each."""
_COMPLETE: Final = "complete"


def refuse_foreign(value: Any, own: type[Result]) -> None:
    """Refuse a result that belongs to another kind of handler, or ends no call: as data it would pass as a success.

    Results that no handler gives, such as those of a client, are data as any other model.

    Raises:
        OutputError: it is such a result.
    """
    if not isinstance(value, Result):
        return
    if isinstance(value, _ENDS) and not isinstance(value, own):
        raise OutputError(
            f"returned {type(value).__name__}, which belongs to another kind of handler: return {own.__name__}"
        )
    for kind, instead in _INSTEAD.items():
        if isinstance(value, kind):
            raise OutputError(f"returned {type(value).__name__}: {instead}")
    if getattr(value, "result_type", _COMPLETE) not in (None, _COMPLETE):
        raise OutputError(f"returned {type(value).__name__}, which says that it is not complete")


def ends_a_call(value: Any) -> bool:
    """Return whether a value is a result that ends a call of some kind of handler."""
    return isinstance(value, _ENDS)


def outcome_of(value: Any) -> Any:
    """Return the outcome of a tool's own result; any other value stays as it is.

    Structured content that is None is absent, as on the wire of the official SDK. An `Outcome` can carry `null`.

    Raises:
        OutputError: it is a result of another kind, or ends no call.
    """
    refuse_foreign(value, CallToolResult)
    if not isinstance(value, CallToolResult):
        return value
    structured = ABSENT if value.structured_content is None else value.structured_content
    meta = None if value.meta is None else dict(value.meta)
    return Outcome(tuple(value.content), structured, is_error=bool(value.is_error), meta=meta)


def mentions(annotation: Any, kind: type[Result]) -> bool:
    """Return whether an annotation names a kind of result, alone or among others: then the value decides in each
    call."""
    if inspect.isclass(annotation) and issubclass(annotation, (kind, InputRequiredResult, CreateTaskResult)):
        return True
    return any(mentions(each, kind) for each in get_args(annotation))


_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\r(?!\n)")
_ESCAPES: Final = (b"\\u00", b"\\b", b"\\f", b"\\r")


def without_controls(text: str) -> str:
    """Take out control characters except tabs and line ends: text from elsewhere may hold escape sequences.

    A carriage return stays only before a line feed: alone it lets a terminal overwrite what it has shown.
    """
    return _CONTROLS.sub("", text)


def may_hold_controls(body: bytes) -> bool:
    """Return whether JSON text may hold such characters; the check is cheap, and sometimes wrong in saying yes.

    JSON writes those below a space as escapes, and the others as themselves in UTF-8.
    """
    if b"\\" in body and any(escape in body for escape in _ESCAPES):
        return True
    return b"\x7f" in body or (not body.isascii() and b"\xc2" in body)
