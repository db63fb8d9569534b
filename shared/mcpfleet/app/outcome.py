"""What a tool call ended in: content for the model, structured content for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from mcp_types import ContentBlock, TextContent


class _Absent(Enum):
    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent.ABSENT
"""No structured content, which is not the same as `null` (M38)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call, as far as the application decides it.

    A handler may return one itself where it has both to show and to tell, for example an image and its measures.
    """

    content: Sequence[ContentBlock] = ()
    """For the model. Where it is empty, the structured content is repeated here as JSON text."""
    structured: Any = ABSENT
    """Any JSON value, or what pydantic makes one of; checked against the output schema where there is one."""
    is_error: bool = False
    """The model should read it as a failure; such a result may break the output schema (M39)."""
    meta: Mapping[str, Any] | None = None
    """Further members of the result's `_meta`."""

    @classmethod
    def failed(cls, text: str) -> Outcome:
        """A failure that the model should read."""
        return cls((TextContent(text=text),), is_error=True)

    def cleaned(self, clean: Callable[[str], str]) -> Outcome:
        """The same with its texts cleaned; itself, where that changes none."""
        blocks = [_cleaned(block, clean) for block in self.content]
        is_changed = any(new is not old for new, old in zip(blocks, self.content, strict=True))
        return replace(self, content=tuple(blocks)) if is_changed else self

    def fields(self) -> dict[str, Any]:
        """Compose the members of the result on the wire, without `_meta` and `resultType`; null stays (M38)."""
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
