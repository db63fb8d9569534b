"""Declarations and results of 2026-07-28 in the forms of the revisions of 2025 (M78). Pure functions.

Those had neither `resultType` nor cache hints nor the server's name in `_meta`. An output schema's root had to be an
object, so any other value is wrapped as `{"result": …}`. 2025-06-18 also had no icons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from mcpfleet.wire.language import CONTENT_LANGUAGE_META_KEY
from mcpfleet.wire.protocol import OLDEST, TASKS_EXTENSION
from mcpfleet.wire.reply import read

WRAPPED: Final = "result"
"""The member that holds a value which is not an object."""
_OF_SAMPLING: Final = frozenset({"text", "image", "audio"})
"""The blocks of a conversation in 2025-06-18."""
_MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
_DEFINITIONS: Final = ("$defs", "definitions", "$schema")
"""Members that stay at a schema's root when the rest moves below it, so that `#/$defs/…` still leads there."""


def declaration(kind: str, wire: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return a tool, resource, template or prompt in the revision's form."""
    shown = dict(wire)
    if revision == OLDEST:
        shown.pop("icons", None)
    schema = shown.get("outputSchema")
    if kind == "tool" and isinstance(schema, dict) and needs_wrapping(schema):
        wrapped = _wrapped(schema)
        if wrapped is None:
            del shown["outputSchema"]
        else:
            shown["outputSchema"] = wrapped
    return shown


def declarations(kind: str, items: bytes, revision: str) -> bytes:
    """Return the declarations of a list, as JSON without the brackets, in the revision's form."""
    return b",".join(to_json(declaration(kind, wire, revision)) for wire in from_json(b"[%b]" % items))


def needs_wrapping(schema: Mapping[str, Any] | None) -> bool:
    """Return whether values of an output schema may be other than objects, by the schema's root."""
    return schema is not None and schema.get("type") != "object"


def result(body: bytes, revision: str, *, wraps: bool, language: str | None = None) -> bytes:
    """Return a result in the revision's form.

    Args:
        body: the result of 2026-07-28, from a worker or the edge.
        revision: the wanted revision.
        wraps: the tool's structured content stands below a member, as its declaration says.
        language: that of its texts, which `_meta` names; None where it is not told.

    Raises:
        ValueError: it is not a JSON object, or has too many values.
    """
    fields = read(body)
    if not isinstance(fields, dict):
        raise ValueError("a result must be an object")  # noqa: TRY004  # it is bad input
    for name in _MODERN_MEMBERS:
        fields.pop(name, None)
    if language is not None:
        fields["_meta"] = {**(fields.get("_meta") or {}), CONTENT_LANGUAGE_META_KEY: language}
    if not fields.get("_meta"):
        fields.pop("_meta", None)
    if "structuredContent" in fields:
        structured = fields["structuredContent"]
        if wraps or not isinstance(structured, dict):
            fields["structuredContent"] = {WRAPPED: structured}
    if revision == OLDEST:
        for block in _blocks(fields):
            block.pop("icons", None)
    return to_json(fields)


class NotInRevision(Exception):
    """Raised when the revision has no such question to a client."""


def question(method: str, params: Mapping[str, Any], revision: str, identifier: str) -> dict[str, Any]:
    """Return the parameters of a question to the client in the revision's form (M78, M79).

    Args:
        method: the method of the request.
        params: the parameters of 2026-07-28.
        revision: the wanted revision.
        identifier: names the question, as 2025-11-25 requires for pages to open.

    Raises:
        NotInRevision: the revision has no such question.
    """
    shown = dict(params)
    if method == "sampling/createMessage" and revision == OLDEST:
        messages = [each for message in shown["messages"] for each in _single_blocks(message)]
        return {**shown, "messages": messages}
    if method != "elicitation/create":
        return shown
    is_page = shown.get("mode") == "url"
    if revision != OLDEST:
        return {**shown, "elicitationId": identifier} if is_page else shown
    if is_page:
        raise NotInRevision("pages cannot be opened")
    shown.pop("mode", None)
    schema = shown["requestedSchema"]
    fields = {name: _older_field(field) for name, field in schema["properties"].items()}
    return {**shown, "requestedSchema": {**schema, "properties": fields}}


def _single_blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a message for 2025-06-18, which has one block: several blocks become as many messages."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    if any(block["type"] not in _OF_SAMPLING for block in blocks):
        raise NotInRevision("models use no tools")
    return ({**message, "content": block} for block in blocks)


def _older_field(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form's field for 2025-06-18: titles of choices stood beside the values, and only one choice was
    possible."""
    if field.get("type") == "array":
        raise NotInRevision("several of several cannot be chosen")
    choices = field.get("oneOf")
    if choices is None:
        return dict(field)
    rest = {name: value for name, value in field.items() if name != "oneOf"}
    return {
        **rest,
        "enum": [choice["const"] for choice in choices],
        "enumNames": [choice.get("title", choice["const"]) for choice in choices],
    }


def capabilities(declared: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Return the capabilities of a client of the revision, without later ones such as tasks (M71).

    Other extensions stay: some began in these revisions, and an application's own may be for them (X47).
    """
    found = {name: _stated(value) for name, value in declared.items() if name != "extensions"}
    if isinstance(stated := declared.get("extensions"), dict):
        extensions = {
            name: value for name, value in stated.items() if name != TASKS_EXTENSION and isinstance(value, dict)
        }
        found |= {"extensions": extensions} if extensions else {}
    if revision == OLDEST:
        found |= {name: {} for name in ("elicitation", "sampling") if isinstance(found.get(name), dict)}
    return found


def _stated(capability: Any) -> Any:
    """Leave out modes that are null: some libraries write so what a client lacks (L22)."""
    if not isinstance(capability, dict):
        return capability
    return {name: value for name, value in capability.items() if value is not None}


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Put a schema below a member; None if its references to itself would no longer lead there."""
    inner = {name: value for name, value in schema.items() if name not in _DEFINITIONS}
    if any(not reference.startswith(("#/$defs/", "#/definitions/")) for reference in _references(schema)):
        return None
    outer = {name: schema[name] for name in _DEFINITIONS if name in schema}
    return {**outer, "type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("$ref", "$dynamicRef") and isinstance(inner, str):
                yield inner
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _blocks(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all parts of a result that may have icons: content blocks, messages' content, listed resources."""
    for name in ("content", "messages", "resources"):
        listed = fields.get(name)
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                yield each
                inner = each.get("content")
                if isinstance(inner, dict):
                    yield inner
