"""Headers that mirror the body, so that a proxy that reads only headers sees the same request."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import header_mismatch, unknown_header
from mcpfleet.wire.headers import VERSION, Headers
from mcpfleet.wire.parameter_headers import ANNOTATION

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="


def decode(text: str, name: str) -> str:
    """Undo the Base64 form of a value (M3); a value without its prefix or suffix is literal.

    Raises:
        Rejection: -32020 if the Base64 is not canonical or not UTF-8.
    """
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text
    encoded = text[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = base64.b64decode(encoded, validate=True)
        if base64.b64encode(raw).decode() != encoded:
            raise header_mismatch(f"{name} is not canonical Base64")
        return raw.decode()
    except (binascii.Error, ValueError):
        raise header_mismatch(f"{name} is not valid Base64 of UTF-8") from None


def check_version(headers: Headers, version: str) -> None:
    """Compare `MCP-Protocol-Version` with the body's claim.

    Raises:
        Rejection: -32020.
    """
    if headers.single(VERSION) != version:
        raise header_mismatch("MCP-Protocol-Version is missing or differs from the body")


def check_method_and_name(headers: Headers, envelope: Envelope, parameter: str | None) -> None:
    """Compare `Mcp-Method` and `Mcp-Name` with the body (T3).

    Args:
        headers: the headers of the request.
        envelope: its body.
        parameter: the parameter that `Mcp-Name` mirrors; None for a method without `Mcp-Name`.

    Raises:
        Rejection: -32020.
    """
    if headers.single(b"mcp-method") != envelope.method:
        raise header_mismatch("Mcp-Method is missing or differs from the body")
    if parameter is None:
        return
    stated = headers.single(b"mcp-name")
    if stated is None or decode(stated, "Mcp-Name") != envelope.params.get(parameter):
        raise header_mismatch("Mcp-Name is missing or differs from the body")


_ABSENT: Final = object()
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
"""A number as JSON spells it."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """An argument that a header mirrors."""

    header: str
    """The header's name in lower case, for comparison."""
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


def refuse_unknown_parameters(headers: Headers, parameters: tuple[Mirrored, ...]) -> None:
    """Refuse headers that mirror nothing.

    Raises:
        Rejection: -31998.
    """
    known = {parameter.header.encode() for parameter in parameters}
    if any(name.startswith(PREFIX) and name not in known for name in headers.names()):
        raise unknown_header()


def check_parameters(headers: Headers, parameters: tuple[Mirrored, ...], arguments: dict[str, Any]) -> None:
    """Compare each annotated argument with its header: both are present and equal, or both absent.

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
    """Compare texts as they are, booleans in lower case, and numbers by value: 42.0 is 42."""
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        # Decimal, since a double cannot tell great integers apart.
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == Decimal(value)
    return isinstance(value, str) and text == value
