"""The rules of announced definitions, by their kinds: clients must be able to read a list that contains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

from mcp_types import Icon, Prompt, PromptArgument, Resource, ResourceTemplate, Tool
from pydantic import BaseModel, Field, ValidationError

from mcpfleet.app.declaration import check_asks, check_icons, check_name, check_only_for, check_scopes
from mcpfleet.app.errors import Mistake
from mcpfleet.app.extension_names import (
    LARGEST_SETTINGS,
    check_filter,
    check_identifier,
    check_method,
    check_notification,
    check_settings,
)
from mcpfleet.app.folder import check_path
from mcpfleet.app.uri import check_template, check_uri
from mcpfleet.app.validation import Validator, check_input_root
from mcpfleet.bus.rpc import broken_rules
from mcpfleet.contracts.apps import ui_faults
from mcpfleet.contracts.manifest import OWN_KINDS, Definition
from mcpfleet.contracts.skills import check_skill

_MOST_ICONS: Final = 64
"""Icons of a definition, and sizes of an icon."""
_MOST_ARGUMENTS: Final = 256
"""Arguments of a prompt."""

_RULES: Final = {
    "asks": "asks: what a client can declare to answer (D16)",
    "may_ask": "may_ask: what a client can declare to answer (D16)",
    "scopes": "scopes: without space, quote or backslash (RFC 6749)",
    "scopes_if": "scopes_if: of a tool, scopes with valid JSON Schemas",
    "only_for": "only_for: `tenant:`, `client:` or `subject:` and a pattern (D10)",
}


class _Icon(Icon):
    """An icon whose sizes are read up to the first mistake: a long list of mistakes could fill the memory."""

    sizes: Annotated[list[str], Field(max_length=_MOST_ICONS, fail_fast=True)] | None = None


_Icons = Annotated[list[_Icon], Field(max_length=_MOST_ICONS, fail_fast=True)]


class _Tool(Tool):
    """A tool whose icons are read up to the first mistake; the other kinds do the same."""

    icons: _Icons | None = None  # type: ignore[assignment]  # a narrower list, never written to


class _Prompt(Prompt):
    arguments: Annotated[list[PromptArgument], Field(max_length=_MOST_ARGUMENTS, fail_fast=True)] | None = None
    icons: _Icons | None = None  # type: ignore[assignment]  # a narrower list, never written to


class _Resource(Resource):
    icons: _Icons | None = None  # type: ignore[assignment]  # a narrower list, never written to


class _Template(ResourceTemplate):
    icons: _Icons | None = None  # type: ignore[assignment]  # a narrower list, never written to


_WIRES: Final[dict[str, tuple[type[BaseModel], str]]] = {
    "tool": (_Tool, "name"),
    "prompt": (_Prompt, "name"),
    "resource": (_Resource, "uri"),
    "template": (_Template, "uriTemplate"),
}
"""The MCP type of each kind in a list, and the member that names it there."""


_OWN: Final[dict[str, tuple[Callable[[str], None], str]]] = {
    "method": (check_method, "parts with slashes between them, the first none of MCP's own"),
    "notification": (check_notification, "`notifications/` and parts, the first none of MCP's own"),
    "extension": (check_identifier, "a domain backwards, a slash and a name, none of MCP's own"),
    "experimental": (check_identifier, "a domain backwards, a slash and a name, none of MCP's own"),
}
"""The check of each own kind's name, and its rule."""


def faults(definition: Definition) -> Iterator[str]:
    """Yield the rules that a definition breaks: each names a field and a rule, and never a value."""
    yield from _word_faults(definition)
    if definition.kind == "lister":
        if definition.wire:
            yield "wire: must be empty for a lister"
        return
    if definition.kind in OWN_KINDS:
        yield from _own_faults(definition)
        return
    model, name = _WIRES[definition.kind]
    try:
        wire = model.model_validate(definition.wire, by_alias=True, by_name=False)
    except ValidationError as error:
        yield f"wire: {broken_rules(error)}"
        return
    if definition.wire.get(name) != definition.name:
        yield f"wire.{name}: must be the definition's name"
    try:
        check_icons(getattr(wire, "icons", None) or ())
    except Mistake:
        yield "wire.icons: https: or data: URIs (M28)"
    yield from _kind_faults(definition, wire)
    yield from _file_faults(definition)
    yield from ui_faults(definition)


def _file_faults(definition: Definition) -> Iterator[str]:
    """The rules of files: an edge makes URIs of their paths."""
    if definition.file is not None and definition.kind != "resource":
        yield "file: only a resource is a file"
    if definition.skill is None:
        return
    try:
        check_skill(definition.name, definition.skill)
        for ref in definition.skill.files:
            check_path(ref.path)
    except (Mistake, ValueError):
        yield "skill: name, description, files and paths by the specification (X26)"
    if definition.file not in definition.skill.files:
        yield "file: must be the skill's SKILL.md"


def _word_faults(definition: Definition) -> Iterator[str]:
    """The rules of fields that every kind has; edges compose headers and errors from them."""
    try:
        check_asks("asks", definition.asks)
    except Mistake:
        yield _RULES["asks"]
    try:
        check_asks("may_ask", definition.may_ask)
    except Mistake:
        yield _RULES["may_ask"]
    try:
        check_scopes(definition.scopes)
    except Mistake:
        yield _RULES["scopes"]
    try:
        check_scopes(definition.scopes_if)
        for condition in definition.scopes_if.values():
            Validator(condition)
        if definition.scopes_if and definition.kind != "tool":
            yield _RULES["scopes_if"]
    except Mistake:
        yield _RULES["scopes_if"]
    try:
        check_only_for(definition.only_for)
    except Mistake:
        yield _RULES["only_for"]


def _own_faults(definition: Definition) -> Iterator[str]:
    """The rules of own extensions: no name of MCP's own, in any revision (X41, X42)."""
    check, rule = _OWN[definition.kind]
    try:
        check(definition.name)
    except Mistake:
        yield f"name: {rule}"
    if definition.kind in ("method", "notification"):
        if definition.extension is None:
            yield "extension: must name the one that it belongs to"
    else:
        try:
            check_settings("wire", definition.wire)
        except Mistake:
            yield f"wire: an object of up to {LARGEST_SETTINGS} bytes"
    if definition.kind == "notification":
        try:
            check_filter(definition.filter or "")
        except Mistake:
            yield "filter: a name that is none of MCP's own filter"


def _kind_faults(definition: Definition, wire: Any) -> Iterator[str]:
    completable: list[str] = []
    if isinstance(wire, Tool):
        yield from _name_faults(definition)
        yield from _schema_faults(wire)
    elif isinstance(wire, Prompt):
        yield from _name_faults(definition)
        completable = [argument.name for argument in wire.arguments or ()]
        if len(set(completable)) != len(completable):
            yield "wire.arguments: names must differ"
    else:
        try:
            if isinstance(wire, Resource):
                check_uri(definition.name)
            else:
                completable = list(check_template(definition.name).variables)
        except Mistake:
            form = "absolute and normalized (RFC 3986)" if isinstance(wire, Resource) else "a template (RFC 6570)"
            yield f"name: a URI, {form}"
            return
    if not set(definition.completes) <= set(completable):
        yield "completes: must name the definition's arguments"


def _name_faults(definition: Definition) -> Iterator[str]:
    try:
        check_name(definition.kind, definition.name)
    except Mistake:
        yield "name: 1 to 128 letters, digits, _ - and ."


def _schema_faults(tool: Tool) -> Iterator[str]:
    try:
        check_input_root(tool.input_schema)
    except Mistake as mistake:
        yield f"wire.inputSchema: {mistake.why}"
    for field, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
        try:
            Validator(schema or {})
        except Mistake:
            # Our own sentence: the library's would quote the schema.
            yield f"wire.{field}: a valid JSON Schema of a known dialect, within the bounds, that refers to itself only"
