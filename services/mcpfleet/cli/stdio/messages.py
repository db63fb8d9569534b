"""JSON-RPC messages as they came: their bytes go on unchanged, and are read only to know where.

Models would drop members that they do not know, and round numbers. Nothing of the package `mcp` is imported: a client
waits for this process to start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from json import JSONDecoder
from typing import Any, Final, NoReturn, TypeAlias

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
METHOD_NOT_FOUND: Final = -32601
CANCELLED: Final = "notifications/cancelled"
INITIALIZED: Final = "notifications/initialized"
LISTEN: Final = "subscriptions/listen"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""In `_meta`: the revision of a modern request."""
_MOST_DIGITS: Final = 4_000
"""Digits of a number that Python reads; no member that is looked at has more."""

Id: TypeAlias = str | int | float
IdKey: TypeAlias = tuple[type, Id]
"""An id with its type: 1, 1.0 and "1" are three ids."""


class NotAMessage(Exception):
    """Raised when a line is no JSON-RPC message.

    Attributes:
        code: the JSON-RPC code.
        message: a sentence.
        id: the id of the message, if it has one.
    """

    def __init__(self, code: int, message: str, identifier: Id | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = identifier


@dataclass(frozen=True)
class RawMessage:
    """One message."""

    line: bytes
    """Its JSON as it came, on one line."""
    value: dict[str, Any]

    @cached_property
    def method(self) -> str | None:
        """Its method; None for a response."""
        method = self.value.get("method")
        return method if isinstance(method, str) else None

    @cached_property
    def id(self) -> Id | None:
        """Its id; None for a notification, and for an id of a wrong type."""
        return read_id(self.value.get("id"))

    @property
    def key(self) -> IdKey:
        """The id of a request."""
        assert self.id is not None
        return id_key(self.id)

    @property
    def is_request(self) -> bool:
        """Whether an answer is due."""
        return self.method is not None and self.id is not None

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return "method" not in self.value and ("result" in self.value or "error" in self.value)

    @cached_property
    def params(self) -> dict[str, Any]:
        """Its parameters; empty if it has none, or in a wrong form."""
        params = self.value.get("params")
        return params if isinstance(params, dict) else {}

    @cached_property
    def revision(self) -> str | None:
        """The revision that a modern message claims; None for one of 2025."""
        meta = self.params.get("_meta")
        claimed = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        return claimed if isinstance(claimed, str) else None


def read_message(text: bytes | str) -> RawMessage:
    """Read one message.

    Raises:
        NotAMessage: it is none.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value = _parse(decoded.removeprefix("\ufeff"))
    except UnicodeDecodeError:
        raise NotAMessage(PARSE_ERROR, "the message is not UTF-8") from None
    except RecursionError:
        raise NotAMessage(PARSE_ERROR, "the message is nested too deeply") from None
    except ValueError:
        raise NotAMessage(PARSE_ERROR, "the message is not JSON: each line of the input must be one message") from None
    if isinstance(value, list):
        raise NotAMessage(INVALID_REQUEST, "a batch is not accepted: send each message on a line of its own")
    message = RawMessage(_one_line(decoded), value) if isinstance(value, dict) else None
    if message is None or not (message.method is not None or message.is_response):
        identifier = message.id if message else None
        raise NotAMessage(INVALID_REQUEST, "the message is neither a request nor a response", identifier)
    if message.method is not None and "id" in message.value and message.id is None:
        raise NotAMessage(INVALID_REQUEST, "the id is neither a string nor a number")
    return message


def read_id(value: object) -> Id | None:
    """Return an id; None for what cannot be one."""
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def id_key(identifier: Id) -> IdKey:
    """Return an id with its type."""
    return type(identifier), identifier


def error_line(identifier: Id | None, code: int, message: str, data: Any = None) -> bytes:
    """Return an error as a line."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return to_line({"jsonrpc": "2.0", "id": identifier, "error": error})


def notification_line(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Return a notification as a line."""
    return to_line({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))


def to_line(value: dict[str, Any]) -> bytes:
    """Write JSON on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()


def _one_line(text: str) -> bytes:
    """Put a message's JSON on one line: a line end can stand only between its parts, where a space means the same."""
    return text.removeprefix("\ufeff").replace("\r", " ").replace("\n", " ").strip().encode("utf-8", "replace")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


_decoder: Final = JSONDecoder(parse_constant=_refuse)
_patient: Final = JSONDecoder(parse_constant=_refuse, parse_int=_integer)
"""Reads integers of any length, more slowly."""


def _parse(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _patient.decode(text)
