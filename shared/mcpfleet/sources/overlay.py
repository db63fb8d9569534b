"""Lays a configuration over the declarations of a source: clients see the outcome. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

from pydantic import ValidationError

from mcpfleet.app.definition_rules import faults
from mcpfleet.app.errors import Mistake
from mcpfleet.app.task import TaskOptions
from mcpfleet.contracts.manifest import MOST_DEFINITIONS, Definition
from mcpfleet.sources.config_file import first_fault, meant, path_of
from mcpfleet.sources.source import Era, Source, ToolSettings
from mcpfleet.wire.uri_template import BadTemplate, UriTemplate

ListedKind: TypeAlias = Literal["tool", "prompt", "resource", "template"]

_NAMES: Final[Mapping[ListedKind, str]] = {
    "tool": "name", "prompt": "name", "resource": "uri", "template": "uriTemplate"
}  # fmt: skip
"""The member that names a declaration of each kind."""
LARGEST: Final = 256 * 1024
"""Bytes of one declaration."""
LARGEST_MANIFEST: Final = 3 * 1024 * 1024
"""Bytes of all declarations of a pool, below the catalog's limit of a manifest."""
MOST_OBJECTS: Final = 90_000
"""Objects in them, each of which may be a schema, below the catalog's limit too."""
_LONG: Final = 64
"""Characters of a name from which on some clients refuse a tool."""
_NOTHING: Final = ToolSettings()


@dataclass(frozen=True)
class SourceLists:
    """The declarations of a source, as its lists have them: each with every member, unknown ones too."""

    tools: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    completes: bool = False
    """The source completes arguments of prompts and variables of templates."""

    def each(self) -> Iterator[tuple[ListedKind, Mapping[str, Any]]]:
        """Yield every declaration with its kind."""
        yield from (("tool", each) for each in self.tools)
        yield from (("prompt", each) for each in self.prompts)
        yield from (("resource", each) for each in self.resources)
        yield from (("template", each) for each in self.templates)


@dataclass(frozen=True)
class Offer:
    """A declaration as clients see it."""

    source: str
    """The name of its source."""
    declared: str
    """Its name, URI or template at the source."""
    definition: Definition
    era: Era = "auto"
    """The revisions in which the source hears its calls."""

    @property
    def is_renamed(self) -> bool:
        """Whether clients know it by another name than the source."""
        return self.definition.name != self.declared


@dataclass(frozen=True)
class LeftOut:
    """A declaration that clients do not see, and why."""

    source: str
    kind: ListedKind
    name: str
    """Its name at the source; empty for one without."""
    why: str
    is_wanted: bool = False
    """The configuration leaves it out; otherwise it cannot be served."""

    def __str__(self) -> str:
        named = f" {self.name!r}" if self.name else " without a name"
        return f"{self.source}: the {self.kind}{named} is left out: {self.why}"


@dataclass(frozen=True)
class Overlaid:
    """The outcome of laying a configuration over what a source declares."""

    offers: tuple[Offer, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about settings that have no effect, and about names that some clients refuse."""


@dataclass
class _Making:
    """An outcome that grows."""

    offers: dict[tuple[str, str], Offer] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def done(self) -> Overlaid:
        return Overlaid(tuple(self.offers.values()), tuple(self.left_out), tuple(self.notes))


def overlay(source: Source, lists: SourceLists, **members: Any) -> Overlaid:
    """Lay a source's configuration over what it declares.

    A declaration that cannot be served is left out, and the rest is served (B25). Every member stays as it is declared,
    unless the configuration changes it.

    Args:
        source: the configuration.
        lists: what the source declares.
        members: members of every definition, such as `per_caller`.
    """
    known = {str(tool.get("name")) for tool in lists.tools}
    laying = _Laying(source, lists.completes, members)
    for name in source.tools:
        if name not in known:
            remedy = f": {meant(name, known)}" if known else ""
            laying.making.notes.append(
                f"{source.place or source.name}: tools.{name}: the source has no such tool{remedy}"
            )
    for kind, raw in lists.each():
        laying.lay(kind, raw)
    return laying.making.done()


def together(several: Iterable[Overlaid]) -> Overlaid:
    """Return what several sources offer in one pool: of two declarations with one name the first is served (M36)."""
    making = _Making()
    for each in several:
        making.left_out += each.left_out
        making.notes += each.notes
        for offer in each.offers:
            kind, name = offer.definition.kind, offer.definition.name
            first = making.offers.setdefault((kind, name), offer)
            if first is not offer:
                why = f"{first.source} has a {kind} {name!r} too, and stands first"
                making.left_out.append(_left_out(offer, why))
    size, objects, number = 0, 0, 0
    for key, offer in list(making.offers.items()):
        text = offer.definition.text
        size, objects, number = size + len(text), objects + text.count("{"), number + 1
        if number > MOST_DEFINITIONS or size > LARGEST_MANIFEST or objects > MOST_OBJECTS:
            size, objects, number = size - len(text), objects - text.count("{"), number - 1
            del making.offers[key]
            making.left_out.append(_left_out(offer, "the declarations of its pool have reached their bound"))
    return making.done()


def _left_out(offer: Offer, why: str) -> LeftOut:
    kind: Any = offer.definition.kind
    return LeftOut(offer.source, kind, offer.declared, why)


class _CannotBeServed(Exception):
    """Raised when a declaration breaks a rule that every list depends on."""


class _Laying:
    """Lays one source's configuration over its declarations, one by one."""

    def __init__(self, source: Source, completes: bool, members: Mapping[str, Any]) -> None:
        self._source = source
        self._completes = completes
        self._members = members
        self.making = _Making()

    def lay(self, kind: ListedKind, raw: Mapping[str, Any]) -> None:
        """Add one declaration to the outcome, or the reason why it is left out."""
        source, making = self._source, self.making
        declared = raw.get(_NAMES[kind])
        if not isinstance(declared, str) or not declared:
            making.left_out.append(LeftOut(source.name, kind, "", f"{_NAMES[kind]} must be a text"))
            return
        settings = source.tools.get(declared, _NOTHING) if kind == "tool" else _NOTHING
        if (why := _unwanted(source, kind, declared, settings)) is not None:
            making.left_out.append(LeftOut(source.name, kind, declared, why, is_wanted=True))
            return
        wire, lost = _without_bad_icons(_changed(source, kind, raw, settings))
        try:
            definition = self._definition(kind, wire, settings)
        except _CannotBeServed as error:
            making.left_out.append(LeftOut(source.name, kind, declared, str(error)))
            return
        name = definition.name
        if (kind, name) in making.offers:
            other = making.offers[kind, name].declared
            why = f"another {kind} has its name" if other == declared else f"{other!r} is called {name!r} too"
            making.left_out.append(LeftOut(source.name, kind, declared, why))
            return
        if lost:
            making.notes.append(f"{source.name}: icons of the {kind} {declared!r} must be https: or data:")
        if kind == "tool" and len(name) > _LONG:
            making.notes.append(f"{source.name}: {name!r} has over {_LONG} characters, which some clients refuse")
        making.offers[kind, name] = Offer(source.name, declared, definition, settings.era or source.era)

    def _definition(self, kind: ListedKind, wire: dict[str, Any], settings: ToolSettings) -> Definition:
        """Return the definition of a declaration.

        Raises:
            _CannotBeServed: it breaks a rule; the sentence says which.
        """
        source = self._source
        asks = settings.asks if settings.asks is not None else source.asks or ()
        made: dict[str, Any] = {
            "scopes": tuple(dict.fromkeys((*source.scopes, *(settings.scopes or ())))),
            "only_for": tuple(sorted(set(settings.only_for or ()))),
            "may_ask": tuple(sorted(set(asks))),
            "timeout": settings.timeout or source.timeout,
            "completes": _completed(kind, wire) if self._completes else (),
            **self._members,
        }
        if kind == "tool":
            made |= _tool_members(wire, settings)
        try:
            definition = Definition(kind=kind, name=wire[_NAMES[kind]], wire=wire, **made)
            is_whole = Definition.model_validate_json(definition.text) == definition
        except ValidationError as error:
            keys, _, why = first_fault(error)
            raise _CannotBeServed(f"{path_of(keys)}: {why}") from None
        except (ValueError, RecursionError):
            is_whole = False
        if not is_whole:
            raise _CannotBeServed("it nests too deeply, or has numbers or texts that JSON cannot carry")
        if len(definition.text) > LARGEST:
            raise _CannotBeServed(f"it has over {LARGEST} bytes")
        for broken in faults(definition):
            raise _CannotBeServed(broken)
        return definition


def _unwanted(source: Source, kind: ListedKind, name: str, settings: ToolSettings) -> str | None:
    """Return why the configuration leaves a tool out; None if it does not."""
    if kind != "tool":
        return None
    if settings.hide:
        return "it is hidden"
    if source.only is not None and not any(fnmatchcase(name, pattern) for pattern in source.only):
        return "no pattern of `only` has it"
    if any(fnmatchcase(name, pattern) for pattern in source.leave_out):
        return "a pattern of `except` has it"
    return None


def _changed(source: Source, kind: ListedKind, raw: Mapping[str, Any], settings: ToolSettings) -> dict[str, Any]:
    """Return a declaration with the changes of the configuration; all other members stay (B1)."""
    wire = dict(raw)
    if kind in ("tool", "prompt"):
        wire["name"] = settings.name or f"{source.prefix}{raw['name']}"
    if settings.description is not None:
        wire["description"] = settings.description
    if settings.annotations is not None:
        before = raw.get("annotations")
        wire["annotations"] = {**(before if isinstance(before, Mapping) else {}), **settings.annotations}
    return wire


def _without_bad_icons(wire: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a declaration without the icons that clients would not load, and how many those are (M28)."""
    icons = wire.get("icons")
    if not isinstance(icons, list):
        return wire, 0
    kept = [icon for icon in icons if not isinstance(icon, Mapping) or _loads(icon)]
    return ({**wire, "icons": kept}, len(icons) - len(kept)) if len(kept) < len(icons) else (wire, 0)


def _loads(icon: Mapping[str, Any]) -> bool:
    return str(icon.get("src", "")).lower().startswith(("https:", "data:"))


def _tool_members(wire: Mapping[str, Any], settings: ToolSettings) -> dict[str, Any]:
    execution = wire.get("execution")
    if isinstance(execution, Mapping) and execution.get("taskSupport") == "required":
        raise _CannotBeServed("its calls must be tasks of the source, which are not served")
    try:
        options = TaskOptions(task=settings.task, idempotency_key=settings.idempotency_key)
        schema = wire.get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        options.check({"properties": properties if isinstance(properties, Mapping) else {}})
    except Mistake as error:
        raise _CannotBeServed(error.why) from None
    return {"rate": settings.rate, **options.members()}


def _completed(kind: ListedKind, wire: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of a prompt, or the variables of a template, for which the source may have completions."""
    if kind == "prompt":
        arguments = wire.get("arguments") or ()
        names = [each.get("name") for each in arguments if isinstance(each, Mapping)]
        return tuple(name for name in names if isinstance(name, str))
    if kind == "template":
        try:
            return tuple(UriTemplate.parse(str(wire["uriTemplate"])).variables)
        except BadTemplate:
            return ()
    return ()
