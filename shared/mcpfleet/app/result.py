"""Turns a handler's result into the outcome of the call."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Annotated, Any, Final, Union, get_args, get_origin

from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from mcpfleet.app.errors import Mistake, OutputError
from mcpfleet.app.outcome import ABSENT, Kept, Outcome, mentions, outcome_of
from mcpfleet.app.schema import MISSING, adapter_for, copied_schema, output_schema
from mcpfleet.app.validation import Validator
from mcpfleet.contracts.task_payloads import KeptResult, Shape, write_kept

BLOCKS: Final = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)


_BLOCKS: Final[TypeAdapter[list[ContentBlock]]] = TypeAdapter(list[ContentBlock])

_PARTS: Final = {
    "block": BLOCKS,
    "text": (str,),
    "nothing": (None, types.NoneType),
    "open": (MISSING, Any, object, Outcome),
}
"""The promise of each part of an annotation; any other part is `data`."""


class ReturnKind(Enum):
    """The promise of a return annotation."""

    CONTENT = auto()
    """Text, content blocks, or nothing."""
    DATA = auto()
    """A value with a schema."""
    OPEN = auto()
    """Anything: the value decides in each call."""


class Returns:
    """Turns a handler's return value into an outcome.

    `str` is text. Content blocks, one or a list with text among them, stay as they are. `None` is no content. A
    `CallToolResult` is the result itself. Any other value is structured content with its schema, repeated as JSON text
    for clients that read only that.

    Args:
        annotation: the return annotation.
        schema: the author's own output schema; by default that of the annotation.
        structured: False sends data only as text.

    Raises:
        Mistake: the annotation mixes content and data, has no schema, or the schema is not usable.
    """

    def __init__(self, annotation: Any, schema: Mapping[str, Any] | None, *, structured: bool = True) -> None:
        self.kind = classify(annotation)
        self._structured = structured
        self._adapter: TypeAdapter[Any] | None = None
        if self.kind is ReturnKind.DATA:
            self._adapter = adapter_for(annotation, "serialization", "return")
        self.schema = self._choose_schema(schema)
        """The tool's `outputSchema`; None if there is none."""
        self._validator = None if self.schema is None else Validator(self.schema, formats=schema is None)

    def outcome(self, value: Any) -> Outcome:
        """Return the outcome of a call that did not fail.

        Raises:
            OutputError: the value breaks the declaration, or is not JSON (M39).
        """
        value = outcome_of(value)
        if isinstance(value, Outcome):
            return self._completed(value)
        content = self._content(value)
        if content is not None:
            return Outcome(content)
        data, text = self._written(value)
        return Outcome((TextContent(text=text),), data if self._structured else ABSENT)

    def data(self, value: Any) -> Any:
        """Return a value as JSON data, checked by the schema; raises as `outcome`."""
        return self._written(value)[0]

    def kept(self, value: Any) -> Kept:
        """Return the form in which a task keeps a value that its sanitizer has yet to see.

        Raises:
            OutputError: as `outcome`; or the value could not be read back, so no sanitizer could ever see it.
        """
        outcome = self.outcome(value)
        kept = Kept(outcome, self._shape(value))
        body = to_json({**kept.fields(), "_meta": outcome.meta})
        self.read_back(write_kept(kept.shape, body))
        return kept

    def read_back(self, text: str | bytes) -> Any:
        """Return the handler's value from a task's kept text: data by the return annotation.

        Raises:
            OutputError: the text has another form, or breaks the declaration.
        """
        try:
            kept = KeptResult.read(text)
            return self._read_back(kept.shape, kept.result)
        except (ValidationError, LookupError, TypeError, ValueError) as error:
            raise OutputError(f"a task's kept result does not read back as the return annotation: {error}") from error

    def _read_back(self, shape: Shape, result: dict[str, Any]) -> Any:
        if shape is Shape.DATA:
            text = result["content"][0]["text"]  # the same data, if it is structured too
            return from_json(text) if self._adapter is None else self._adapter.validate_json(text)
        if shape is Shape.RESULT:
            return CallToolResult.model_validate(result, by_alias=True, by_name=False)
        content = _BLOCKS.validate_python(result["content"], by_alias=True, by_name=False)
        match shape:
            case Shape.OUTCOME:
                structured, meta = result.get("structuredContent", ABSENT), result.get("_meta") or None
                return Outcome(content, structured, is_error=result["isError"], meta=meta)
            case Shape.TEXT:
                [block] = content
                return block.text if isinstance(block, TextContent) else block
            case Shape.BLOCK:
                [block] = content
                return block
            case _:
                return content if shape is Shape.BLOCKS else None

    def _shape(self, value: Any) -> Shape:
        if isinstance(value, CallToolResult):
            return Shape.RESULT
        if isinstance(value, Outcome):
            return Shape.OUTCOME
        if self._content(value) is None:
            return Shape.DATA
        if value is None:
            return Shape.NOTHING
        if isinstance(value, str):
            return Shape.TEXT
        return Shape.BLOCK if isinstance(value, BLOCKS) else Shape.BLOCKS

    def _content(self, value: Any) -> tuple[ContentBlock, ...] | None:
        """Return a value as content; None for data."""
        if self._validator is not None or self.kind is ReturnKind.DATA:
            return None
        content = as_content(value, texts=self.kind is ReturnKind.CONTENT)
        if content is None and self.kind is ReturnKind.CONTENT:
            raise OutputError(f"returned {type(value).__name__}, though its annotation says content")
        return content

    def _choose_schema(self, schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return output_schema(self._adapter) if self._adapter and self._structured else None
        if not self._structured:
            raise Mistake("an output_schema describes structured content, and structured=False says there is none")
        return copied_schema(schema)

    def _completed(self, outcome: Outcome) -> Outcome:
        """Check a result that the handler composed itself, and add the text that it left to us."""
        content = as_content(list(outcome.content))
        if content is None:
            raise OutputError("returned a result whose content is not made of texts and content blocks")
        if outcome.structured is ABSENT:
            if self._validator is not None and not outcome.is_error:
                raise OutputError("returned no structured content, though it has an output schema")
            return replace(outcome, content=content)
        data, text = self._written(outcome.structured, check=not outcome.is_error)
        return replace(outcome, content=content or (TextContent(text=text),), structured=data)

    def _written(self, value: Any, *, check: bool = True) -> tuple[Any, str]:
        """Turn a value into JSON, checked by the schema: as a value and as text."""
        try:
            if self._adapter is not None:
                data = self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
            else:
                data = to_jsonable_python(value)
            text = to_json(data).decode()
            if "NaN" in text or "Infinity" in text:
                json.dumps(data, allow_nan=False)
        except (PydanticSerializationError, ValueError) as error:
            raise OutputError(f"returned a value that cannot be written as JSON: {error}") from error
        if check and self._validator is not None and not self._validator.accepts(data):
            broken = "; ".join(map(str, self._validator.problems(data)))
            raise OutputError(f"returned a value that breaks its output schema: {broken}")
        return data, text


def classify(annotation: Any) -> ReturnKind:
    """Return the promise of a return annotation.

    Raises:
        Mistake: it allows content and data at once.
    """
    parts = _parts(annotation)
    if "open" in parts:
        return ReturnKind.OPEN
    if "block" not in parts:
        return ReturnKind.CONTENT if parts in ({"text"}, {"nothing"}) else ReturnKind.DATA
    if "data" in parts:
        raise Mistake("mixes content blocks and data: return an `Outcome`, which holds both", "return")
    return ReturnKind.CONTENT


def as_content(value: Any, *, texts: bool = True) -> tuple[ContentBlock, ...] | None:
    """Return a value as content: text, a block, a sequence of both, or nothing.

    Args:
        value: the handler's result.
        texts: a sequence without any block is content too; otherwise it is data.

    Returns:
        None for data.

    Raises:
        OutputError: a text holds a lone surrogate.
    """
    if value is None:
        return ()
    if isinstance(value, (str, *BLOCKS)):
        return (_block(value),)
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, *BLOCKS)) for item in value):
        return tuple(map(_block, value)) if texts or any(isinstance(item, BLOCKS) for item in value) else None
    return None


def _block(value: str | ContentBlock) -> ContentBlock:
    block = TextContent(text=value) if isinstance(value, str) else value
    if isinstance(block, TextContent):
        try:
            block.text.encode()
        except UnicodeEncodeError:
            raise OutputError("returned a text with a lone surrogate, which no JSON can carry") from None
    return block


def _parts(annotation: Any) -> set[str]:
    """Name the parts that a value of the type may have; a sequence is data unless a block is among its items."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _parts(arguments[0])
    if origin in (Union, types.UnionType):
        return set[str]().union(*map(_parts, arguments))
    if origin in (list, tuple, Sequence):
        parts = set[str]().union(*(_parts(item) for item in arguments if item is not Ellipsis))
        return parts if "block" in parts else {"data"}
    if mentions(annotation, CallToolResult):
        return {"open"}
    return {next((part for part, members in _PARTS.items() if annotation in members), "data")}
