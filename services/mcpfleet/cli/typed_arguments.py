"""Reads what a person types by the schema of what takes it: a tool, a prompt, or a question's form.

A schema may come from any server, so nothing here trusts its form. A part that is malformed allows everything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

from mcpfleet.cli.value_rules import broken, said
from mcpfleet.process.errors import ConfigurationError

_KINDS: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NAMES: Final = {
    "string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object in JSON",
}  # fmt: skip
_KINDS_OF_TYPES: Final[Mapping[type, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array",
}  # fmt: skip
_WORDS: Final = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
"""The words that a person may type for a boolean, case aside."""
_SHORT_NAMES: Final = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "yes or no", "array": "list",
    "object": "JSON object",
}  # fmt: skip
_DEEPEST: Final = 8
"""References that are followed from one schema."""
_NEAR: Final = 0.6
"""How similar a name must be to be proposed, from 0 to 1."""


class WrongArguments(ConfigurationError):
    """Raised when arguments do not fit what takes them; each problem names the argument."""


@dataclass(frozen=True)
class Choice:
    """One value of an enumeration."""

    value: Any
    title: str


@dataclass(frozen=True)
class TypedArgument:
    """One parameter of a tool or a prompt, or one field of a form."""

    name: str
    schema: Mapping[str, Any]
    """Its own schema, with references followed."""
    root: Mapping[str, Any]
    """The schema that it stands in, which has the definitions."""
    is_required: bool

    @property
    def title(self) -> str:
        """Its title; its name if it has none."""
        return str(self.schema.get("title") or self.name)

    @property
    def description(self) -> str:
        """Its description; empty if it has none."""
        return str(self.schema.get("description") or "")

    @property
    def has_default(self) -> bool:
        """Whether its schema tells a default."""
        return "default" in self.schema

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types that its value may have."""
        return _kinds(self.schema, self.root)

    @property
    def words(self) -> str:
        """Its value's kind, in words for a person."""
        if self.choices:
            return "some of these" if "array" in self.kinds else "one of these"
        forms = _forms(self.schema, self.root)
        formats = [str(form["format"]) for form in forms if form.get("format") and "string" in _kinds_of_form(form)]
        named = formats or [_SHORT_NAMES[kind] for kind in _SHORT_NAMES if kind in self.kinds - {"null"}]
        return "any JSON" if self.kinds == _KINDS else " or ".join(named)

    @property
    def rules(self) -> list[str]:
        """The bounds of its value, in words for a person."""
        return [rule for form in _forms(self.schema, self.root) for rule in said(form)]

    @property
    def choices(self) -> Sequence[Choice]:
        """The values that it, or each item of its list, may have; empty where they are not enumerated."""
        schema = _items(self.schema, self.root) if "array" in self.kinds else self.schema
        return _choices(schema, self.root) or ()

    def read(self, texts: Sequence[str]) -> Any:
        """Read its value from what was typed, once or, for a list, several times.

        Raises:
            ValueError: the value does not fit; the sentence is a predicate, such as `is not an integer`.
        """
        if len(texts) > 1:
            if "array" not in self.kinds:
                raise ValueError("is given more than once")
            items = _items(self.schema, self.root)
            value: Any = [_read(text, items, self.root) for text in texts]
        else:
            value = _read(texts[0], self.schema, self.root)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Refuse a value that breaks a rule of the schema; raises ValueError as `read` does."""
        for path, problem in _problems(value, self.schema, self.root):
            raise ValueError(f"{problem}{f' (at {path})' if path else ''}")


def parameters(schema: object) -> list[TypedArgument]:
    """The parameters of an object's schema, in its order."""
    root = schema if isinstance(schema, Mapping) else {}
    properties, required = root.get("properties"), root.get("required")
    needed = set(required) if isinstance(required, list) else set()
    return [
        TypedArgument(str(name), _resolved(inner, root), root, name in needed)
        for name, inner in (properties.items() if isinstance(properties, Mapping) else ())
    ]


def split(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Split `name=value` pairs; a name may stand several times.

    Raises:
        WrongArguments: a pair has no `=`.
    """
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise WrongArguments(f"{pair!r} is not name=value")
        texts.setdefault(name, []).append(text)
    return texts


def read_arguments(pairs: Iterable[str], schema: object, *, usage: str = "", closed: bool = False) -> dict[str, Any]:
    """Read `name=value` pairs by a schema.

    A text parameter takes the text as it is. Other values are JSON. `@FILE` is a file's content: as Base64 where the
    schema says so, otherwise as text or JSON. `@@` begins a text that begins with `@`.

    Args:
        pairs: what was typed.
        schema: the schema of an object.
        usage: how to call it, for the error.
        closed: whether it takes none if it names none; otherwise a schema without properties takes any.

    Raises:
        WrongArguments: a name is unknown, a required one is missing, or a value does not fit.
    """
    known = {each.name: each for each in parameters(schema)}
    open_ended = (not known and not closed) or _takes_others(schema)
    arguments: dict[str, Any] = {}
    problems: list[str] = []
    for name, texts in split(pairs).items():
        parameter = known.get(name)
        if parameter is None and not open_ended:
            problems.append(f"{name}: there is no such argument{near(name, known)}")
            continue
        try:
            arguments[name] = (parameter or TypedArgument(name, {}, {}, is_required=False)).read(texts)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    mistaken = {problem.partition(":")[0] for problem in problems}
    missing = (each.name for each in known.values() if each.is_required and each.name not in arguments)
    problems += [f"{name}: is required" for name in missing if name not in mistaken]
    if problems:
        raise WrongArguments(*problems, *([f"usage: {usage}"] if usage else ()))
    return arguments


def near(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that proposes the most similar name; empty where none is similar."""
    found = get_close_matches(name, list(names), n=1, cutoff=_NEAR)
    return f"; did you mean {found[0]}?" if found else ""


def _takes_others(schema: object) -> bool:
    """Whether an object may have properties that its schema does not name, and says so."""
    if not isinstance(schema, Mapping):
        return True
    others = schema.get("additionalProperties")
    return others is True or (isinstance(others, Mapping) and bool(others)) or bool(schema.get("patternProperties"))


def _resolved(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema in place of a reference to it; what stands beside the reference counts too."""
    found = schema if isinstance(schema, Mapping) else {}
    for _ in range(_DEEPEST):
        reference = found.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return found
        target: Any = root
        for part in reference.removeprefix("#/").split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            return {key: value for key, value in found.items() if key != "$ref"}
        found = {**target, **{key: value for key, value in found.items() if key != "$ref"}}
    return {}


def _forms(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a schema; the schema itself where it has none."""
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options:
            return [form for option in options for form in _forms(_resolved(option, root), root)]
    return [schema]


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(kind for form in _forms(schema, root) for kind in _kinds_of_form(form))


def _kinds_of_form(form: Mapping[str, Any]) -> Iterable[str]:
    if "const" in form:
        return [_kind(form["const"])]
    if isinstance(form.get("enum"), list):
        return [_kind(value) for value in form["enum"]]
    kinds = form.get("type")
    if isinstance(kinds, list):
        return [kind for kind in kinds if kind in _KINDS] or _KINDS
    return [kinds] if kinds in _KINDS else _KINDS


def _kind(value: Any) -> str:
    return _KINDS_OF_TYPES.get(type(value), "object")


def _fits(value: Any, kinds: frozenset[str]) -> bool:
    kind = _kind(value)
    if kind == "integer":
        return not kinds.isdisjoint({"integer", "number"})
    return kind in kinds or (kind == "number" and "integer" in kinds and float(value).is_integer())


def _items(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a list's items."""
    for form in _forms(schema, root):
        if isinstance(form.get("items"), Mapping):
            return _resolved(form["items"], root)
    return {}


def _choices(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Choice] | None:
    """The values that are enumerated; None where a value may be another one."""
    found: list[Choice] = []
    for form in _forms(schema, root):
        if "const" in form:
            found.append(Choice(form["const"], str(form.get("title") or _text(form["const"]))))
        elif isinstance(form.get("enum"), list):
            titles = form.get("enumNames")
            named = titles if isinstance(titles, list) and len(titles) == len(form["enum"]) else form["enum"]
            found += [Choice(value, _text(title)) for value, title in zip(form["enum"], named, strict=True)]
        elif form.get("type") == "null":
            found.append(Choice(None, "null"))
        else:
            return None
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(text: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    kinds = _kinds(schema, root)
    if text.startswith("@@"):
        text = text[1:]
    elif text.startswith("@") and len(text) > 1:
        return _from_file(Path(text[1:]).expanduser(), schema, root, kinds)
    choices = _choices(schema, root)
    if choices is not None:
        return _chosen(text, choices)
    found = list(_json(text))
    if found and _fits(found[0], kinds):
        # A text in JSON's quotes is that text: so a text may be given that looks like something else.
        return int(found[0]) if isinstance(found[0], float) and "number" not in kinds else found[0]
    if "string" in kinds:
        return text
    if "array" in kinds and not text.startswith("["):
        return [_read(text, _items(schema, root), root)]
    if "boolean" in kinds and text.casefold() in _WORDS:
        return _WORDS[text.casefold()]
    raise ValueError(f"is not {_named(kinds)}")


def _named(kinds: frozenset[str]) -> str:
    return " or ".join(name for kind, name in _NAMES.items() if kind in kinds)


def _chosen(text: str, choices: Sequence[Choice]) -> Any:
    found = list(_json(text))
    for choice in choices:
        if text == choice.value or (found and _kind(found[0]) == _kind(choice.value) and found[0] == choice.value):
            return choice.value
    for choice in choices:
        if text.casefold() == choice.title.casefold():
            return choice.value
    raise ValueError(f"is not one of {', '.join(_text(choice.value) for choice in choices)}")


def _from_file(path: Path, schema: Mapping[str, Any], root: Mapping[str, Any], kinds: frozenset[str]) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None
    if any(_is_binary(form) for form in _forms(schema, root)):
        return base64.b64encode(content).decode()
    if "array" in kinds and _is_binary(_items(schema, root)):
        return [base64.b64encode(content).decode()]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not text in UTF-8") from None
    if "string" in kinds:
        return text
    found = list(_json(text))
    if not found:
        raise ValueError(f"the file {path} is not JSON")
    if not _fits(found[0], kinds):
        raise ValueError(f"the file {path} is not {_named(kinds)}")
    return found[0]


def _is_binary(schema: Mapping[str, Any]) -> bool:
    return schema.get("contentEncoding") in ("base64", "base64url") or schema.get("format") in ("binary", "byte")


def _json(text: str) -> Iterator[Any]:
    """The value of a text that is JSON; nothing for any other."""
    try:
        yield json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(constant)


def _problems(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How a value breaks its schema: for each problem the place inside of the value, and a predicate."""
    forms = [form for form in _forms(schema, root) if _fits(value, frozenset(_kinds_of_form(form)))]
    if not forms or not any(form.keys() - {"title", "description", "default", "type", "examples"} for form in forms):
        return
    yield from broken(value, forms, root)
