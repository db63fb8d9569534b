"""JSON Schemas (2020-12) from Python types, by pydantic, and schemas that an author brings along."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, from_json, to_json

from mcpfleet.app.errors import Mistake

MISSING: Final[Any] = inspect.Parameter.empty
"""Where a signature says nothing: no annotation, or no default."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a call's arguments fill."""

    name: str
    annotation: Any
    """Resolved, `Annotated` kept; `MISSING` where there is none."""
    default: Any
    """`MISSING` where the argument is required."""


Mode = Literal["validation", "serialization"]


class SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, without titles that repeat a field's name: each model that reads a tool pays for them."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's own signature
        """Leave it out."""
        return False


def adapter_for(annotation: Any, mode: Mode, parameter: str | None = None) -> TypeAdapter[Any]:
    """Make what converts values of a type.

    Raises:
        Mistake: the type has no JSON Schema.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.json_schema(mode=mode)
    except PydanticUserError as error:
        why = str(error).partition("\n")[0]
        raise Mistake(f"{annotation!r} is no type that JSON can carry: {why}", parameter) from error
    return adapter


def output_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Describe what a type's values look like once they are serialised."""
    return adapter.json_schema(mode="serialization", schema_generator=SchemaGenerator)


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
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **shared,
    }


def brought_along(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an author's own schema, whole.

    Raises:
        Mistake: it is no JSON.
    """
    try:
        copy = from_json(to_json(schema), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        raise Mistake(f"the schema is not JSON: {error}") from error
    if not isinstance(copy, dict):
        raise Mistake("the schema must be an object")
    return copy


def refuse_field_default(parameter: Parameter) -> None:
    """Refuse a default that stands inside `Field()`: a call of the plain function would not see it.

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
