"""From a call's arguments to what the handler is called with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from pydantic import TypeAdapter, ValidationError

from mcpfleet.app.custom_headers import check_custom_headers
from mcpfleet.app.errors import InvalidArguments, Mistake, Problem
from mcpfleet.app.rules import render_path
from mcpfleet.app.schema import adapter_for, brought_along, input_schema, refuse_field_default
from mcpfleet.app.signature import MISSING, Parameter, Signature
from mcpfleet.app.validation import Validator, check_input_root

WHOLE: Final = "arguments"
"""The parameter that receives all arguments as one dict, where the author brings the schema along."""


class Arguments(Protocol):
    """Checks a call's arguments against the declared schema, and converts them."""

    schema: dict[str, Any]
    """The tool's `inputSchema`."""

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer with the handler's keyword arguments.

        Raises:
            InvalidArguments: they break the schema.
        """


def arguments_for(signature: Signature, schema: Mapping[str, Any] | None) -> Arguments:
    """Choose how a handler gets its arguments: by its own signature, or whole.

    Raises:
        Mistake: the parameters or the schema do not allow it.
    """
    chosen = TypedArguments(signature.parameters) if schema is None else WholeArguments(signature.parameters, schema)
    check_custom_headers(chosen.schema)
    return chosen


class TypedArguments:
    """Arguments by the signature's types.

    The schema is the contract, so it is checked first and strictly: `"5"` is no integer, though pydantic would take it.
    Pydantic then makes dates, models and the like of them, and runs the author's own validators.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        adapters: dict[str, tuple[Parameter, TypeAdapter[Any]]] = {}
        for parameter in parameters:
            if parameter.annotation is MISSING:
                raise Mistake("has no annotation: its type is the schema that clients see", parameter.name)
            refuse_field_default(parameter)
            adapters[parameter.name] = parameter, adapter_for(parameter.annotation, "validation", parameter.name)
        self.schema = input_schema(adapters)
        self._validator = Validator(self.schema)
        self._converters = {name: adapter.validate_python for name, (_, adapter) in adapters.items()}
        self._check_defaults()

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer with the handler's keyword arguments; those that are absent are left to its own defaults.

        Raises:
            InvalidArguments: they break the schema, or one of the author's validators.
        """
        if not self._validator.accepts(arguments):
            raise InvalidArguments(self._validator.problems(arguments))
        values = {}
        problems: list[Problem] = []
        for name, value in arguments.items():
            try:
                values[name] = self._converters[name](value)
            except ValidationError as error:
                problems += self._explain(name, error)
        if problems:
            raise InvalidArguments(problems)
        return values

    def _explain(self, name: str, error: ValidationError) -> list[Problem]:
        """Name the field and the kind of error: pydantic's own sentences, and an author's, may quote the value."""
        return [
            Problem(render_path([name, *found["loc"]], self._validator.names), f"is not accepted ({found['type']})")
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        ]

    def _check_defaults(self) -> None:
        """A client may send what the schema shows as a default, so it must fit."""
        properties = self.schema.get("properties", {})
        defaults = {name: stated["default"] for name, stated in properties.items() if "default" in stated}
        for problem in Validator({**self.schema, "required": []}).problems(defaults):
            raise Mistake(f"the default does not fit the annotation: {problem}", problem.path.partition(".")[0])


class WholeArguments:
    """All arguments as one dict, checked by the schema that the author brought along."""

    def __init__(self, parameters: tuple[Parameter, ...], schema: Mapping[str, Any]) -> None:
        if [parameter.name for parameter in parameters] != [WHOLE]:
            raise Mistake(f"with an input_schema the handler takes one parameter `{WHOLE}: dict[str, Any]`")
        self.schema = brought_along(schema)
        check_input_root(self.schema)
        self._validator = Validator(self.schema)

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer with the one keyword argument.

        Raises:
            InvalidArguments: they break the schema.
        """
        if not self._validator.accepts(arguments):
            raise InvalidArguments(self._validator.problems(arguments))
        return {WHOLE: arguments}
