"""JSON Schemas (2020-12) of Python types, by pydantic, and authors' own schemas."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError, from_json, to_json

from mcpfleet.app.errors import Mistake
from mcpfleet.app.inlining import inlined
from mcpfleet.app.values import SchemaGenerator, carrying_bytes

UNUSABLE: Final = (PydanticUserError, SchemaError, RecursionError)
"""The errors of a type of which no adapter or no JSON Schema can be made."""
MISSING: Final[Any] = inspect.Parameter.empty
"""Stands for an absent annotation or default."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a call's arguments fill."""

    name: str
    annotation: Any
    """Resolved, with `Annotated`; `MISSING` if there is none."""
    default: Any
    """`MISSING` for a required argument."""


Mode = Literal["validation", "serialization"]


def adapter_for(annotation: Any, mode: Mode, parameter: str | None = None) -> TypeAdapter[Any]:
    """Return the adapter that converts values of a type.

    Raises:
        Mistake: the type has no JSON Schema.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.json_schema(mode=mode)
        carrying_bytes(adapter)
    except UNUSABLE as error:
        raise Mistake(f"{annotation!r} is not a type that JSON can carry: {why_unusable(error)}", parameter) from error
    return adapter


def why_unusable(error: BaseException) -> str:
    """The part of an error of `UNUSABLE` that says what is wrong with the type."""
    if isinstance(error, RecursionError):
        return "its types are nested too deeply"
    # pydantic says first what is wrong, and adds advice; the parser of patterns says it last, below a drawing.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if isinstance(error, SchemaError) else lines[0]


def output_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Describe a type's values in their serialised form."""
    return inlined(adapter.json_schema(mode="serialization", schema_generator=SchemaGenerator))


def input_schema(parameters: Mapping[str, tuple[Parameter, TypeAdapter[Any]]]) -> dict[str, Any]:
    """Describe a call's arguments: an object with one property for each parameter, and no other (M37).

    Raises:
        Mistake: a default cannot be written as JSON.
    """
    if not parameters:
        return {"type": "object", "additionalProperties": False}
    schemas, shared = TypeAdapter.json_schemas(
        [(name, "validation", adapter) for name, (_, adapter) in parameters.items()], schema_generator=SchemaGenerator
    )
    properties = {name: dict(schemas[name, "validation"]) for name in parameters}
    for name, (parameter, adapter) in parameters.items():
        if parameter.default is not MISSING:
            properties[name]["default"] = _written_default(parameter, adapter)
    required = [name for name, (parameter, _) in parameters.items() if parameter.default is MISSING]
    return inlined(
        {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **shared,
        }
    )


def copied_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole copy of an author's own schema.

    Raises:
        Mistake: it is not JSON.
    """
    try:
        copy = from_json(to_json(schema), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        raise Mistake(f"the schema is not JSON: {error}") from error
    if not isinstance(copy, dict):
        raise Mistake("the schema must be an object")
    return copy


def refuse_field_default(parameter: Parameter) -> None:
    """Refuse a default inside of `Field()`: a call of the plain function would not see it.

    Raises:
        Mistake: there is one.
    """
    stated = get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()
    inside = any(isinstance(item, FieldInfo) and not item.is_required() for item in stated)
    if inside or isinstance(parameter.default, FieldInfo):
        raise Mistake("write `Annotated[…, Field(…)]`, and the default behind it", parameter.name)


def _written_default(parameter: Parameter, adapter: TypeAdapter[Any]) -> Any:
    try:
        written = adapter.dump_python(parameter.default, mode="json", warnings=False)
        return from_json(to_json(written), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        raise Mistake("the default cannot be written as JSON", parameter.name) from error
