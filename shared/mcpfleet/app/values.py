"""Values whose JSON form is ours and not pydantic's: bytes are Base64, and a `format` says exactly what is accepted."""

from __future__ import annotations

import base64
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import (
    PydanticCustomError,
    PydanticSerializationUnexpectedValue,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
)

T = TypeVar("T")

BASE64: Final = "base64"
"""The encoding of bytes in schemas, and the kind of the error where a text is in another one."""
NOT_BASE64: Final = "must be Base64 with its padding (RFC 4648, section 4)"

_CLOCK: Final = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_DAY: Final = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_PARTS: Final = r"([0-9]+Y)?([0-9]+M)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,6})?S)?)?|[0-9]+W"
# JSON Schema's formats would exclude what the types hold: a time without a zone, a part of a second.
TIME: Final = {"pattern": rf"^{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?$", "examples": ["09:30:00"]}
DURATION: Final = {"pattern": rf"^-?P(?=[0-9T])({_PARTS})$", "examples": ["PT1H30M"]}
LOCAL: Final = {"pattern": rf"^{_DAY}T{_CLOCK}$", "examples": ["2026-01-31T09:30:00"]}

_OPAQUE: Final = frozenset({"metadata", "serialization", "default", "config", "cls", "function", "expected"})
"""Members of a core schema that hold no core schema."""
_BY_NAME: Final = frozenset({"fields", "choices"})
"""Members that may be dicts of core schemas by names of the author."""


class SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, with the JSON forms of this module.

    It leaves out titles that repeat a field's name: each model that reads a tool pays for them.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's own signature
        """Leave it out."""
        return False

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Describe bytes as Base64; bounds of their number become bounds of the text's length."""
        described: JsonSchemaValue = {"type": "string", "contentEncoding": BASE64}
        for bound, keyword in (("min_length", "minLength"), ("max_length", "maxLength")):
            if bound in schema:
                described[keyword] = -(-schema[bound] // 3) * 4  # type: ignore[literal-required]  # one of the two
        return described

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
        """Let a type with a form of its own, such as `Base64UrlBytes`, describe that form alone."""
        described = super().function_after_schema(schema)
        if "serialization" in schema:
            described.pop("contentEncoding", None)
        return described

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """Describe a moment; the format says that it has its zone, and `NaiveDatetime` has none."""
        described = super().datetime_schema(schema)
        return _patterned(described, LOCAL) if schema.get("tz_constraint") == "naive" else described

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """Describe a time of day, with a zone or without."""
        return _patterned(super().time_schema(schema), TIME)

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Describe a duration, which may be negative and have parts of a second."""
        return _patterned(super().timedelta_schema(schema), DURATION)


def _patterned(described: JsonSchemaValue, instead: JsonSchemaValue) -> JsonSchemaValue:
    """Replace a format; a type that is written as a number has none."""
    return {"type": "string", **instead} if "format" in described else described


def carrying_bytes(adapter: TypeAdapter[T]) -> TypeAdapter[T]:
    """Let an adapter read and write bytes as Base64, at any depth of its type.

    A type that brings its own serializer keeps its own form. The setting `ser_json_bytes` of a model does not count.
    """
    changed, has_bytes = _rewritten(adapter.core_schema)
    if has_bytes:
        # Models have validators of their own, which know nothing of the change.
        adapter.validator = SchemaValidator(changed, _use_prebuilt=False)
        adapter.serializer = SchemaSerializer(changed, _use_prebuilt=False)
    return adapter


def _rewritten(node: Any) -> tuple[Any, bool]:
    """Return a core schema whose bytes are Base64, and whether it has any."""
    if isinstance(node, list | tuple):
        parts = [_rewritten(each) for each in node]
        return type(node)(each for each, _ in parts), any(has for _, has in parts)
    if not isinstance(node, dict):
        return node, False
    kind = str(node.get("type"))
    if "serialization" in node and (kind == "bytes" or kind.startswith("function-")):
        return node, False
    if kind == "bytes":
        return _AS_BASE64 | {"schema": node}, True
    made, has_bytes = {}, False
    for name, value in node.items():
        if name in _BY_NAME and isinstance(value, dict):
            named = {key: _rewritten(each) for key, each in value.items()}
            made[name], has = {key: each for key, (each, _) in named.items()}, any(has for _, has in named.values())
        else:
            made[name], has = (value, False) if name in _OPAQUE else _rewritten(value)
        has_bytes |= has
    return made, has_bytes


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise PydanticCustomError(BASE64, NOT_BASE64) from None


def _encoded(value: Any) -> str:
    if not isinstance(value, bytes):
        raise PydanticSerializationUnexpectedValue(f"{type(value).__name__} is not bytes")
    return base64.b64encode(value).decode()


_AS_BASE64: Final[dict[str, Any]] = {
    "type": "function-before",
    "function": {"type": "no-info", "function": _decoded},
    "serialization": core_schema.plain_serializer_function_ser_schema(
        _encoded, return_schema=core_schema.str_schema(), when_used="json"
    ),
}
