"""`Mcp-Param-*`: arguments that a tool wants mirrored in headers, and the check that header and body agree (M6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from mcpfleet.wire.errors import header_mismatch, unknown_header
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.mirror import decode

ANNOTATION: Final = "x-mcp-header"
_ABSENT: Final = object()
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
"""A number as JSON spells it."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One argument that is mirrored."""

    header: str
    """The header's name as it is compared: lower-case."""
    path: tuple[str, ...]
    """The exact chain of properties that leads to the argument."""


def mirrored(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Mirrored]:
    """Find the annotated properties of an input schema; only a chain of `properties` leads to one."""
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict):
            if isinstance(annotation := inner.get(ANNOTATION), str):
                yield Mirrored(f"mcp-param-{annotation.lower()}", (*path, name))
            yield from mirrored(inner, (*path, name))


PREFIX: Final = b"mcp-param-"


def refuse_unknown(headers: Headers, parameters: tuple[Mirrored, ...]) -> None:
    """Refuse headers that mirror nothing.

    Raises:
        Rejection: -31998.
    """
    known = {parameter.header.encode() for parameter in parameters}
    if any(name.startswith(PREFIX) and name not in known for name in headers.names()):
        raise unknown_header()


def check(headers: Headers, parameters: tuple[Mirrored, ...], arguments: dict[str, Any]) -> None:
    """Compare each annotated argument with its header: both there and equal, or neither.

    Raises:
        Rejection: -32020.
    """
    for parameter in parameters:
        stated = headers.single(parameter.header.encode())
        value = _value_at(arguments, parameter.path)
        if value is None or value is _ABSENT:
            if stated is not None:
                raise header_mismatch(f"{parameter.header} stands for an argument that is absent")
        elif stated is None or not _agree(decode(stated, parameter.header), value):
            raise header_mismatch(f"{parameter.header} is missing or differs from its argument")


def _value_at(arguments: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _agree(text: str, value: Any) -> bool:
    """Compare as text, booleans in lower case, and numbers as numbers: 42.0 is 42."""
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        # Decimal, since a double cannot tell great integers apart.
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == Decimal(value)
    return isinstance(value, str) and text == value
