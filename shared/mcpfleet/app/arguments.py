"""Turns a call's arguments, JSON values or texts, into the handler's keyword arguments."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Protocol, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mcpfleet.app.errors import DeclarationWarning, InvalidArguments, Mistake, NotAccepted, Problem
from mcpfleet.app.problems import explain_kind, render_path
from mcpfleet.app.schema import MISSING, Parameter, adapter_for, copied_schema, input_schema, refuse_field_default
from mcpfleet.app.signature import Signature
from mcpfleet.app.validation import Subschema, Validator, check_input_root, walk

WHOLE: Final = "arguments"
"""The parameter that receives all arguments as one dict, if the author gives the schema."""


class Arguments(Protocol):
    """Checks a call's arguments by the declared schema, and converts them."""

    schema: dict[str, Any]
    """The tool's `inputSchema`."""

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the handler's keyword arguments.

        Raises:
            InvalidArguments: they break the schema.
        """


def arguments_for(signature: Signature, schema: Mapping[str, Any] | None) -> Arguments:
    """Return how a handler gets its arguments: by its own signature, or whole.

    Raises:
        Mistake: the parameters or the schema do not allow it.
    """
    chosen = TypedArguments(signature.parameters) if schema is None else WholeArguments(signature.parameters, schema)
    check_custom_headers(chosen.schema)
    return chosen


class TypedArguments:
    """Arguments by the signature's types.

    The schema is the contract, so it is checked first and strictly: `"5"` is not an integer, though pydantic would take
    it. Then pydantic makes dates, models and other types, and runs the author's own validators.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        adapters: dict[str, tuple[Parameter, TypeAdapter[Any]]] = {}
        for parameter in parameters:
            if parameter.annotation is MISSING:
                raise Mistake("has no annotation: its type is the schema that clients see", parameter.name)
            refuse_field_default(parameter)
            adapters[parameter.name] = parameter, adapter_for(parameter.annotation, "validation", parameter.name)
        self.schema = input_schema(adapters)
        self._validator = Validator(self.schema, formats=True)
        self._converters = {name: adapter.validate_python for name, (_, adapter) in adapters.items()}
        self._check_defaults()

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the handler's keyword arguments; absent ones keep the handler's own defaults.

        Raises:
            InvalidArguments: they break the schema.
            NotAccepted: they break a `format`, which an edge does not check, or one of the author's validators.
        """
        if not self._validator.accepts(arguments):
            found = self._validator.problems(arguments)
            raise NotAccepted(found) if self._structure.accepts(arguments) else InvalidArguments(found)
        values = {}
        problems: list[Problem] = []
        for name, value in arguments.items():
            try:
                values[name] = self._converters[name](value)
            except ValidationError as error:
                problems += self._explain(name, error)
        if problems:
            raise NotAccepted(problems)
        return values

    @cached_property
    def _structure(self) -> Validator:
        """The schema without its formats, as an edge checks it before it makes a task."""
        return Validator(self.schema)

    def _explain(self, name: str, error: ValidationError) -> list[Problem]:
        """Name the field and the kind of error: texts of pydantic or the author may quote the value."""
        return [
            Problem(
                render_path([name, *found["loc"]], self._validator.names),
                explain_kind(found["type"], found.get("ctx", {})),
            )
            for found in error.errors(include_url=False, include_input=False)
        ]

    def _check_defaults(self) -> None:
        """A client may send a default that the schema shows, so it must fit."""
        properties = self.schema.get("properties", {})
        defaults = {name: stated["default"] for name, stated in properties.items() if "default" in stated}
        for problem in Validator({**self.schema, "required": []}, formats=True).problems(defaults):
            raise Mistake(f"the default does not fit the annotation: {problem}", problem.path.partition(".")[0])


class WholeArguments:
    """All arguments as one dict, checked by the author's own schema."""

    def __init__(self, parameters: tuple[Parameter, ...], schema: Mapping[str, Any]) -> None:
        if [parameter.name for parameter in parameters] != [WHOLE]:
            raise Mistake(f"with an input_schema the handler takes one parameter `{WHOLE}: dict[str, Any]`")
        self.schema = copied_schema(schema)
        check_input_root(self.schema)
        self._validator = Validator(self.schema)

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the one keyword argument.

        Raises:
            InvalidArguments: they break the schema.
        """
        if not self._validator.accepts(arguments):
            raise InvalidArguments(self._validator.problems(arguments))
        return {WHOLE: arguments}


class Texts:
    """Parses texts by a signature's parameters: `5` for an `int`, `2026-01-31` for a date, JSON for the rest.

    Raises:
        Mistake: a parameter has no annotation, or none that JSON can carry.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._described: dict[str, tuple[str | None, str | None]] = {}
        required: list[str] = []
        for parameter in parameters:
            if parameter.annotation is MISSING:
                raise Mistake("has no annotation: its type says how a text is read", parameter.name)
            refuse_field_default(parameter)
            self._adapters[parameter.name] = adapter_for(parameter.annotation, "validation", parameter.name)
            self._described[parameter.name] = _stated(parameter.annotation)
            if parameter.default is MISSING:
                required.append(parameter.name)
        self.names = tuple(self._adapters)
        self.required = tuple(required)

    def described(self, name: str) -> tuple[str | None, str | None]:
        """Return a parameter's title and description from `Field(…)`."""
        return self._described[name]

    def read(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the handler's keyword arguments; absent ones keep the handler's own defaults.

        Raises:
            InvalidArguments: one is missing, unknown, not a text, or cannot be parsed; the error repeats no value.
        """
        problems = [Problem(name, "is required") for name in self.required if name not in texts]
        if any(name not in self._adapters for name in texts):
            known = f"only have the members {', '.join(self.names)}" if self.names else "have no members"
            problems.append(Problem("", f"may {known}"))
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name in self._adapters:
                try:
                    values[name] = _parsed(self._adapters[name], text)
                except ValidationError as error:
                    found = error.errors(include_url=False, include_input=False)[0]
                    problems.append(Problem(name, explain_kind(found["type"], found.get("ctx", {}))))
        if problems:
            raise InvalidArguments(problems)
        return values


def _stated(annotation: Any) -> tuple[str | None, str | None]:
    """Return the title and the description of the annotation's last `Field(…)`."""
    stated = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    fields = [each for each in stated if isinstance(each, FieldInfo)]
    return (fields[-1].title, fields[-1].description) if fields else (None, None)


def _parsed(adapter: TypeAdapter[Any], text: Any) -> Any:
    """Read a text in the type's own text form, or as JSON if the type has none.

    Raises:
        ValidationError: it is neither.
    """
    try:
        return adapter.validate_strings(text, strict=False)
    except ValidationError as error:
        if not isinstance(text, str):
            raise
        try:
            return adapter.validate_json(text)
        except (ValidationError, ValueError):
            raise error from None


KEYWORD: Final = "x-mcp-header"

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every client reads exactly."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET: Final = re.compile(r"(?i)passw|secret|token|api.?key|credential|authoriz|private.?key|cookie|session")


def check_custom_headers(schema: dict[str, Any]) -> None:
    """Check every custom header of an input schema: a client leaves out a tool that has a bad one.

    Warn of names that look secret: every proxy on the way can read a header.

    Raises:
        Mistake: a header's name is not a token or is taken, or its parameter has a type or a place without a header.
    """
    taken: set[str] = set()
    for place in walk(schema):
        if KEYWORD not in place.schema:
            continue
        header = place.schema[KEYWORD]
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise Mistake(f"{KEYWORD} {header!r} is not the name of a header", place.name)
        if header.lower() in taken:
            raise Mistake(f"{KEYWORD} {header!r} is taken by another parameter; case makes no difference", place.name)
        taken.add(header.lower())
        _check_place(place)
        if _SECRET.search(header) or _SECRET.search(place.name):
            warnings.warn(
                f"{KEYWORD} {header!r} looks like a secret, and every proxy reads it", DeclarationWarning, stacklevel=2
            )


def _check_place(place: Subschema) -> None:
    if not place.path or not place.by_properties:
        raise Mistake(f"{KEYWORD} must stand on a property that is reached by properties alone", place.name)
    kind = place.schema.get("type")
    if kind not in ("string", "integer", "boolean"):
        raise Mistake(f"{KEYWORD} goes with type string, integer or boolean, not {kind!r}", place.name)
    if kind == "integer" and any(abs(number) > SAFE_INTEGER for number in _stated_integers(place.schema)):
        raise Mistake(f"{KEYWORD} goes with integers from {-SAFE_INTEGER} to {SAFE_INTEGER}", place.name)


def _stated_integers(schema: dict[str, Any]) -> list[int]:
    stated = [schema.get(keyword) for keyword in ("minimum", "maximum", "const", "default")]
    return [value for value in [*stated, *schema.get("enum", [])] if isinstance(value, int)]
