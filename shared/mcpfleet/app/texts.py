"""Arguments that are texts on the wire, parsed to the types that a handler declares (M41, M42)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mcpfleet.app.errors import InvalidArguments, Mistake, Problem
from mcpfleet.app.schema import adapter_for, refuse_field_default
from mcpfleet.app.signature import MISSING, Parameter


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
        """A parameter's title and description, where `Field(…)` gives them."""
        return self._described[name]

    def read(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Answer with the handler's keyword arguments; those that are absent are left to its own defaults.

        Raises:
            InvalidArguments: one is missing, unknown, no text, or cannot be parsed; values are not repeated.
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
                    kind = error.errors(include_url=False, include_context=False, include_input=False)[0]["type"]
                    problems.append(Problem(name, f"is not accepted ({kind})"))
        if problems:
            raise InvalidArguments(problems)
        return values


def _stated(annotation: Any) -> tuple[str | None, str | None]:
    """The title and the description of the annotation's last `Field(…)`."""
    stated = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    fields = [each for each in stated if isinstance(each, FieldInfo)]
    return (fields[-1].title, fields[-1].description) if fields else (None, None)


def _parsed(adapter: TypeAdapter[Any], text: Any) -> Any:
    """Read a text as the type's own text form, and as JSON where the type has none.

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
