"""The declared texts that can be translated: where they stand, and by which context a message file names them (X33).

Names, URIs, keys, enum values and codes are never among them (X34). Workers, edges and the command line share this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mcpfleet.contracts.manifest import Definition, Kind

SEPARATOR: Final = "\x04"
"""Stands between a context and a text, as gettext has it."""
SERVER: Final = "server"
"""The beginning of the contexts of an application's own texts."""
DESCRIPTIONS: Final = "descriptions"
INSTRUCTIONS: Final = "instructions"
_TITLED: Final = frozenset[Kind]({"tool", "prompt", "resource", "template"})

Path = tuple[str | int, ...]
Find = Callable[[str, str], str]
"""Returns the translation of a text in a context; the text itself where there is none (X39)."""


class DeclaredText(NamedTuple):
    """A text of a declaration."""

    context: str
    """Names it among all texts, for example `tool:search:title`."""
    path: Path
    """The members that lead to it."""
    text: str
    option: str | None = None
    """The option that enables its translation; None if it is always translated."""


def texts_of(definition: Definition, entry: Mapping[str, Any] | None = None) -> Iterator[DeclaredText]:
    """Find the texts of a definition that can be translated. Frontmatter of skills is none (X34).

    Args:
        definition: the tool, prompt, resource or template.
        entry: as a list shows it; as it is declared, by default.
    """
    kind, wire = definition.kind, definition.wire if entry is None else entry
    if kind not in _TITLED or definition.skill is not None:
        return
    place = f"{kind}:{definition.name}"
    yield from _found(place, wire, ())
    if isinstance(annotations := wire.get("annotations"), dict) and isinstance(title := annotations.get("title"), str):
        yield DeclaredText(f"{place}:annotations.title", ("annotations", "title"), title)
    for index, argument in enumerate(wire.get("arguments") or () if kind == "prompt" else ()):
        yield from _found(place, argument, ("arguments", index), f"arguments.{argument.get('name')}.")


def _found(place: str, members: Mapping[str, Any], path: Path, before: str = "") -> Iterator[DeclaredText]:
    for name, option in (("title", None), ("description", DESCRIPTIONS)):
        if isinstance(text := members.get(name), str) and text:
            yield DeclaredText(f"{place}:{before}{name}", (*path, name), text, option)


def texts_of_server(title: str | None, description: str | None, instructions: str | None) -> Iterator[DeclaredText]:
    """Find the texts of an application itself."""
    told = (("title", title, None), ("description", description, DESCRIPTIONS))
    for name, text, option in (*told, ("instructions", instructions, INSTRUCTIONS)):
        if text:
            yield DeclaredText(f"{SERVER}:{name}", (name,), text, option)


def translated(
    definition: Definition, entry: Mapping[str, Any], find: Find, options: Collection[str]
) -> Mapping[str, Any]:
    """Return an entry of a list with its texts translated; the same object where nothing changes."""
    for each in texts_of(definition, entry):
        if each.option is None or each.option in options:
            text = find(each.context, each.text)
            if text != each.text:
                entry = _replaced(entry, each.path, text)
    return entry


def _replaced(value: Any, path: Path, text: str) -> Any:
    """Return a copy of a value with another text at a place."""
    if not path:
        return text
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        return [_replaced(each, rest, text) if index == first else each for index, each in enumerate(value)]
    return {**value, first: _replaced(value[first], rest, text)}


def key_of(context: str | None, text: str) -> str:
    """Return the key of a text in a compiled message file."""
    return text if context is None else f"{context}{SEPARATOR}{text}"
