"""The errors that a client gets in place of a result: one constructor for each row of the error table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from mcpfleet.wire.protocol import LONGEST_ECHO, SERVED

_NO_KEYS: Final = 60
"""Seconds after which a client may try again, in case the operator has provided keys."""
_OF_IMPLEMENTATIONS: Final = range(-32099, -31999)
_RESOURCE_NOT_FOUND: Final = -32002
"""The revisions of 2025 have this code."""
UNKNOWN_HEADER: Final = -31998
"""Our own code, outside of those that JSON-RPC and MCP reserve."""
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Rejection(Exception):
    """Raised when the protocol's own error answers a request.

    Attributes:
        status: the HTTP status.
        code: the JSON-RPC code; None if the HTTP status is the whole answer.
        message: a sentence that repeats nothing from the client (T16).
        data: `error.data`.
        headers: further response headers.
        reason: why, for the operator's log; the client never learns it.
    """

    def __init__(
        self,
        status: int,
        code: int | None = None,
        message: str = "",
        data: Any = None,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data
        self.headers = headers
        self.reason = reason


# The head alone shows these faults. They are refused before an id is read, and have none (T33).


def unknown_path() -> Rejection:
    """No endpoint has the path (404)."""
    return Rejection(404, INVALID_REQUEST, "Not found: no endpoint has this path")


def foreign_host() -> Rejection:
    """The request names a foreign Host (403)."""
    why = "Forbidden: this server does not go by this Host; its operator can add it to MCPFLEET_PUBLIC_HOSTS"
    return Rejection(403, INVALID_REQUEST, why)


def foreign_origin() -> Rejection:
    """The request comes from a page that may not call (403)."""
    why = "Forbidden: pages of this Origin may not call; the server's operator can add it to MCPFLEET_CORS_ORIGINS"
    return Rejection(403, INVALID_REQUEST, why)


def wrong_http_method(allowed: str) -> Rejection:
    """The path exists for other HTTP methods (405)."""
    return Rejection(405, INVALID_REQUEST, f"Method not allowed: use {allowed}", headers={"Allow": allowed})


def not_acceptable(kinds: Iterable[str]) -> Rejection:
    """`Accept` leaves out a media type that an answer may have (406)."""
    return Rejection(406, INVALID_REQUEST, f"Not acceptable: Accept must allow {' and '.join(kinds)}")


def wrong_media_type() -> Rejection:
    """The body is declared to be something else than JSON in UTF-8 (415)."""
    return Rejection(415, INVALID_REQUEST, "Unsupported media type: Content-Type must be application/json, in UTF-8")


def wrong_coding() -> Rejection:
    """The body is declared to be compressed (415); the answer names the accepted codings (RFC 9110, 12.5.3)."""
    why = "Unsupported coding: send the body without Content-Encoding"
    return Rejection(415, INVALID_REQUEST, why, headers={"Accept-Encoding": "identity"})


def too_large(limit: int) -> Rejection:
    """The body has more bytes than the limit (413)."""
    why = f"Too large: a body may have {limit} bytes"
    return Rejection(413, INVALID_REQUEST, why, headers={"Connection": "close"})


def too_slow() -> Rejection:
    """The body did not arrive in time (408)."""
    return Rejection(408, INVALID_REQUEST, "Too slow: the body did not arrive in time", headers={"Connection": "close"})


def not_json() -> Rejection:
    """The body is not JSON (400, -32700)."""
    return Rejection(400, PARSE_ERROR, "Parse error")


def bad_envelope(why: str) -> Rejection:
    """The body is not a single JSON-RPC request or notification (400, -32600)."""
    return Rejection(400, INVALID_REQUEST, f"Invalid request: {why}")


def bad_params(why: str, data: Any = None) -> Rejection:
    """The parameters lack the method's form, or name something that the caller cannot see (400, -32602)."""
    return Rejection(400, INVALID_PARAMS, f"Invalid params: {why}", data)


def duplicate_request() -> Rejection:
    """A request with this id runs in the same session (200, -32600); in the revisions of 2025 only."""
    return Rejection(200, INVALID_REQUEST, "Invalid request: a request with this id is running")


class SessionFault(Rejection):
    """Raised when a request cannot be served in its session, or without one; the status tells it (L5)."""


class UnknownSession(SessionFault):
    """Raised when the session does not exist, or no longer, for this caller at this endpoint (404; L5).

    Its error never has the request's id: clients would take it for the call's own error, and keep the lost session.
    """

    def __init__(self) -> None:
        super().__init__(404, INVALID_REQUEST, "Session terminated or unknown: send initialize to begin another")


def other_revision() -> SessionFault:
    """The request states another revision than its session's (400, -32602; L21)."""
    return SessionFault(400, INVALID_PARAMS, "Invalid params: the session was begun with another protocol version")


def session_over() -> Rejection:
    """A session has ended by itself while its request ran (200, -32603; L8)."""
    return Rejection(200, INTERNAL_ERROR, "The session has ended")


def session_needed() -> SessionFault:
    """The request needs a session, and names none (400)."""
    return SessionFault(400, INVALID_REQUEST, "Invalid request: this needs a session, named by Mcp-Session-Id")


def unknown_resource(uri: str) -> Rejection:
    """No resource exists under this URI for this caller (400, -32602; M42)."""
    return Rejection(400, INVALID_PARAMS, "Invalid params: unknown resource", {"uri": uri})


def unknown_header() -> Rejection:
    """A mirrored header matches no argument of the tool, and the edge is strict (400, -31998)."""
    return Rejection(400, UNKNOWN_HEADER, "Unknown mirrored header")


def unknown_method() -> Rejection:
    """The method does not exist, or its capability is not advertised (404, -32601; M14)."""
    return Rejection(404, METHOD_NOT_FOUND, "Method not found")


def handshake_is_gone(served: Sequence[str] = SERVED) -> Rejection:
    """`initialize` with a modern version: this revision lacks the method, and the error names the versions (T17)."""
    return Rejection(404, METHOD_NOT_FOUND, "Method not found", {"supported": list(served)})


def header_mismatch(why: str) -> Rejection:
    """A mirrored header is missing, repeated, badly encoded or different from the body (400, -32020)."""
    return Rejection(400, HEADER_MISMATCH, f"Header mismatch: {why}")


def missing_capabilities(missing: Iterable[str]) -> Rejection:
    """The client lacks a capability that the target needs (400, -32021); the error lists only the missing ones."""
    required: dict[str, dict[str, Any]] = {}
    for name in missing:
        head, _, mode = name.partition(".")
        required.setdefault(head, {}).update({mode: {}} if mode else {})
    return Rejection(
        400,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capabilities: {', '.join(sorted(required))}",
        {"requiredCapabilities": required},
    )


def unsupported_version(requested: str | None, served: Sequence[str] = SERVED) -> Rejection:
    """The revision is not served (400, -32022)."""
    data: dict[str, Any] = {"supported": list(served)}
    if requested is not None:
        data["requested"] = requested[:LONGEST_ECHO]
    return Rejection(400, UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


RATE_LIMITED: Final = -31999
"""The code for a request over its caller's limit (D4)."""


def unauthorized(challenge: str = "Bearer", reason: str = "") -> Rejection:
    """The credential is missing or bad (401); the challenge tells how to get one."""
    headers = {"WWW-Authenticate": challenge}
    return Rejection(401, INTERNAL_ERROR, "Unauthorized", headers=headers, reason=reason)


def malformed_authorization(challenge: str) -> Rejection:
    """The credential stands in a forbidden place (400, -32600; M63)."""
    return Rejection(
        400, INVALID_REQUEST, "Invalid request: malformed authorization", headers={"WWW-Authenticate": challenge}
    )


def forbidden(challenge: str = "Bearer") -> Rejection:
    """The credential lacks a scope (403); the challenge names all scopes of the operation (M63)."""
    return Rejection(403, INTERNAL_ERROR, "Insufficient scope", headers={"WWW-Authenticate": challenge})


def rate_limited(retry_after: int) -> Rejection:
    """The caller's limit is used up (429, -31999); `retry_after` is in seconds (D4)."""
    return Rejection(
        429,
        RATE_LIMITED,
        "Rate limit exceeded: nothing was run; try again later",
        {"retryAfter": retry_after},
        {"Retry-After": str(retry_after)},
    )


def no_capacity(retry_after: int) -> Rejection:
    """No capacity, or no worker, within the bounded wait (503); `retry_after` is in seconds (D4)."""
    return Rejection(
        503,
        INTERNAL_ERROR,
        "No capacity: nothing was run; try again later",
        {"retryAfter": retry_after},
        {"Retry-After": str(retry_after)},
    )


def cannot_seal() -> Rejection:
    """No key can seal the client's state (503): a fault of the set-up, not of the load."""
    why = "This server cannot remember what this request needs; its operator must give it keys"
    return Rejection(503, INTERNAL_ERROR, why, {"retryAfter": _NO_KEYS}, {"Retry-After": str(_NO_KEYS)})


class NotAnswered(Rejection):
    """Raised when a service did not answer in time, before anything ran (504)."""


def not_answered(what: str) -> NotAnswered:
    """A service did not answer in time, before anything ran (504)."""
    return NotAnswered(504, INTERNAL_ERROR, f"{what} did not answer in time; nothing was run")


def maybe_done(what: str) -> NotAnswered:
    """A service did not confirm a change in time; asking again is safe (504)."""
    return NotAnswered(504, INTERNAL_ERROR, f"{what} did not answer in time; it may have been done: ask again")


def unchanged(what: str) -> NotAnswered:
    """A service could not make a change, and has changed nothing (504)."""
    return NotAnswered(504, INTERNAL_ERROR, f"{what} could not do this now; nothing was changed: ask again")


def internal(reference: str | None = None, status: int = 500) -> Rejection:
    """A mistake of ours (500), or of the application (200); the log has the reference id, where a trace was begun."""
    return Rejection(
        status, INTERNAL_ERROR, f"Internal error (reference {reference})" if reference else "Internal error"
    )


def upstream_error(code: int, message: str, data: Any) -> Rejection:
    """A source's own error (400, or 200 for an internal one), as it is but for codes that clients never get (B3, M24).

    Those are the codes that JSON-RPC leaves to implementations: clients would take some for the protocol's own, and
    connect anew. The original is in the data then.
    """
    if code not in _OF_IMPLEMENTATIONS:
        return Rejection(200 if code == INTERNAL_ERROR else 400, code, message, data)
    original = {"code": code, "message": message} | ({} if data is None else {"data": data})
    if code == _RESOURCE_NOT_FOUND:
        return Rejection(400, INVALID_PARAMS, message, {"upstream": original})
    return Rejection(200, INTERNAL_ERROR, message, {"upstream": original})


def memory_too_large() -> Rejection:
    """A handler remembers more between two rounds than a request may carry (500)."""
    return Rejection(500, INTERNAL_ERROR, "What the handler remembers is too large for a request: make it a task")


def not_modern() -> Rejection:
    """A modern request to an endpoint of 2025 alone (400, without a body): clients then send `initialize` (X62)."""
    return Rejection(400)


def unsupported_notification() -> Rejection:
    """A notification that the endpoint does not take (400, without a body; T13 to T15)."""
    return Rejection(400)
