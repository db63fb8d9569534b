"""One JSON-RPC request or notification, read from a body: its id, method, parameters and `_meta`."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from mcpfleet.wire.errors import bad_envelope, bad_params
from mcpfleet.wire.strict import is_utf8, refuse_surrogates

RequestId: TypeAlias = str | int | float


class Envelope(NamedTuple):
    """A message that a client posted."""

    id: RequestId | None
    """None for a notification; 1 and "1" are two ids (T6)."""
    method: str
    params: dict[str, Any]
    meta: dict[str, Any]


class Response(NamedTuple):
    """A client's response, in a revision of 2025, to a request of the server."""

    id: str
    """The id of the server's request; empty if it is no text, as our ids are."""
    result: dict[str, Any] | None
    error: dict[str, Any] | None


def read_response(body: bytes, message: Any) -> Response | None:
    """Read a parsed body that is a response; None for any other body.

    A response that is malformed beyond its id has neither result nor error, so its asker stops waiting.

    Raises:
        Rejection: -32700 for text that is not Unicode.
    """
    if not isinstance(message, dict) or "method" in message or message.get("jsonrpc") != "2.0":
        return None
    identifier, result, error = message.get("id"), message.get("result"), message.get("error")
    if not isinstance(identifier, str):
        if not is_response(message):
            return None
        identifier = ""
    refuse_surrogates(body, message)
    if error is not None or not isinstance(result, dict):  # some libraries write null for an absent error (L22)
        return Response(identifier, None, error if isinstance(error, dict) else None)
    return Response(identifier, result, None)


def is_response(message: Any) -> bool:
    """Return whether a message, even a malformed one, answers a request: its id is not of the sender (T36)."""
    return isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)


def read_id(message: Any) -> RequestId | None:
    """Read the id of a message, even a malformed one, in the type in which it came (M2)."""
    value = message.get("id") if isinstance(message, dict) else None
    if isinstance(value, str):
        return value if is_utf8(value) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def read_envelope(body: bytes, message: Any) -> Envelope:
    """Check that a parsed body is one request or notification (M8).

    Raises:
        Rejection: -32600 for the envelope, -32602 for params or `_meta` that are not objects.
    """
    if isinstance(message, list):
        raise bad_envelope("a batch is not accepted")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise bad_envelope("not a JSON-RPC 2.0 message")
    method = message.get("method")
    if not isinstance(method, str):
        raise bad_envelope("a response is not accepted" if "method" not in message else "the method is not a string")
    if "id" not in message:
        return _read_notification(method, message)
    identifier = read_id(message)
    if identifier is None:
        raise bad_envelope("the id is neither a string nor a number")
    # Some libraries write null for absent members (L22); a modern request without `_meta` is refused later.
    params = {} if (stated := message.get("params")) is None else stated
    if not isinstance(params, dict):
        raise bad_params("params is not an object")
    meta = {} if (stated := params.get("_meta")) is None else stated
    if not isinstance(meta, dict):
        raise bad_params("_meta is not an object")
    refuse_surrogates(body, message)
    return Envelope(identifier, method, params, meta)


def _read_notification(method: str, message: dict[str, Any]) -> Envelope:
    """Read a notification; nobody uses its parameters, so their form does not matter (T15)."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    return Envelope(None, method, params, meta if isinstance(meta, dict) else {})


def is_notification(message: Any) -> bool:
    """Return whether a message, even a malformed one, wants no answer."""
    return isinstance(message, dict) and "id" not in message and isinstance(message.get("method"), str)
