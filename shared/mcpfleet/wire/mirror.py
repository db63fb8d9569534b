"""Headers that mirror the body, so that whoever reads only headers sees the same request (Streamable HTTP)."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import header_mismatch
from mcpfleet.wire.headers import VERSION, Headers

NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The methods that state `Mcp-Name`, and the parameter that it mirrors."""

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="


def decode(text: str, name: str) -> str:
    """Undo the Base64 form of a value (M3); what lacks its prefix or suffix is literal.

    Raises:
        Rejection: -32020 where the Base64 is not canonical or no UTF-8.
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


def check_method_and_name(headers: Headers, envelope: Envelope) -> None:
    """Compare `Mcp-Method`, and `Mcp-Name` where the method has one, with the body (T3).

    Raises:
        Rejection: -32020.
    """
    if headers.single(b"mcp-method") != envelope.method:
        raise header_mismatch("Mcp-Method is missing or differs from the body")
    parameter = NAMED.get(envelope.method)
    if parameter is None:
        return
    stated = headers.single(b"mcp-name")
    if stated is None or decode(stated, "Mcp-Name") != envelope.params.get(parameter):
        raise header_mismatch("Mcp-Name is missing or differs from the body")
