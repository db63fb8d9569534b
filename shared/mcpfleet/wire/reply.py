"""The bytes of replies: responses, errors, notifications and server-sent events, composed by splicing.

A worker's result is JSON already. It is checked and put between our bytes, but never decoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pydantic_core import from_json, to_json

from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.language import content_language
from mcpfleet.wire.protocol import SERVER_INFO_META_KEY
from mcpfleet.wire.scan import scan, without_gc

RESULT_HEAD: Final = b'{"_meta":{'
"""The beginning of every result, behind which the server's name is spliced in."""

KEEPALIVE: Final = b": keepalive\n\n"
"""A comment: it shows proxies that the stream lives, and carries no event (D17)."""


MOST_READ: Final = 500_000
"""Values that an edge reads of a result that it cannot splice; reading and writing them takes 100 ms at worst."""


class NotSpliceable(ValueError):
    """Raised when a worker's body cannot stand inside ours."""


def server_info(info: Mapping[str, Any]) -> bytes:
    """Compose the `_meta` member that names the server in every modern result (M19), without its braces."""
    return to_json({SERVER_INFO_META_KEY: dict(info)})[1:-1]


def written(value: Any) -> bytes:
    """Serialise a value of an application.

    Raises:
        ValueError: a part of it is not JSON: an unknown type, a lone surrogate, NaN or Infinity.
    """
    body = to_json(value)
    if b"NaN" in body or b"Infinity" in body:  # these are harmless as text, so read it again to tell
        json.loads(body, parse_constant=_refuse_constant)
    return body


def read(body: bytes) -> Any:
    """Read a value of an application. A worker that was taken over may have made it to hold the loop (T31).

    Raises:
        ValueError: it is not JSON, or has more than `MOST_READ` values.
    """
    if len(body) <= MOST_READ:  # each value takes a byte
        return from_json(body)
    try:
        for _ in scan(body, MOST_READ, levels=MOST_READ):  # the parser bounds them itself
            pass
    except Rejection as rejection:
        raise ValueError(rejection.message) from rejection
    with without_gc():
        return from_json(body)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def result_body(fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> bytes:
    """Serialise a result so that it begins with `RESULT_HEAD`; raises as `written`."""
    return written({"_meta": dict(meta or {}), **fields})


def failed_result(text: str) -> bytes:
    """Serialise a tool's result that a model reads as a failure."""
    return result_body({"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": True})


def response(identifier: RequestId, result: bytes, server: bytes) -> bytes:
    """Put a result into its response, with the server's name among its `_meta`.

    Raises:
        NotSpliceable: the result does not begin as ours do, or holds a raw line end, which could forge an event.
    """
    if not result.startswith(RESULT_HEAD) or b"\n" in result or b"\r" in result:
        raise NotSpliceable("a result must begin with its _meta and be one line")
    rest = result[len(RESULT_HEAD) :]
    comma = b"" if rest.startswith(b"}") else b","
    return b'{"jsonrpc":"2.0","id":%b,"result":%b%b%b%b}' % (to_json(identifier), RESULT_HEAD, server, comma, rest)


def plain_response(identifier: RequestId, result: bytes) -> bytes:
    """Put a result of a revision of 2025 into its response."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(identifier), result)


def error(identifier: RequestId | None, rejection: Rejection) -> bytes:
    """Compose an error response; without an id if none could be read (M2)."""
    body: dict[str, Any] = {"code": rejection.code, "message": rejection.message}
    if rejection.data is not None:
        body["data"] = rejection.data
    head: dict[str, Any] = {"jsonrpc": "2.0"} | ({"id": identifier} if identifier is not None else {})
    return to_json(head | {"error": body})


def error_body(identifier: RequestId, body: bytes) -> bytes:
    """Put a worker's error object into its response.

    Raises:
        NotSpliceable: it is not a single-line object.
    """
    if not body.startswith(b"{") or b"\n" in body or b"\r" in body:
        raise NotSpliceable("an error must be one line")
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (to_json(identifier), body)


def progress(token: RequestId, body: bytes, language: str | None = None) -> bytes:
    """Put a worker's progress (`{"progress":…}`) into a notification for the request's token.

    Args:
        token: the request's.
        body: the progress.
        language: that of its message, if it has one; None where it is not told.

    Raises:
        NotSpliceable: it is not a single-line object.
    """
    if not body.startswith(b'{"progress":') or b"\n" in body or b"\r" in body:
        raise NotSpliceable("a progress report must be one line")
    head = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,' % to_json(token)
    if language is not None and b'"message":' in body:
        head += b'"_meta":{%b},' % content_language(language)
    return b"%b%b}" % (head, body[1:])


def log_message(body: bytes) -> bytes:
    """Put a worker's log message (`{"level":…}`) into a notification.

    Raises:
        NotSpliceable: it is not a single-line object.
    """
    if not body.startswith(b'{"level":') or b"\n" in body or b"\r" in body:
        raise NotSpliceable("a log message must be one line")
    return b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}' % body


def with_cache_hints(result: bytes, ttl_ms: int, scope: str) -> bytes:
    """Add to a worker's result who may keep it, and for how long (M45).

    Raises:
        NotSpliceable: it is not a single object.
    """
    if not result.startswith(RESULT_HEAD) or not result.endswith(b"}"):
        raise NotSpliceable("a result must be an object")
    return b'%b,"ttlMs":%d,"cacheScope":"%b"}' % (result[:-1], ttl_ms, scope.encode())


def event(data: bytes) -> bytes:
    """Frame a message as a server-sent event, with neither `id:` nor `retry:` (M12)."""
    return b"event: message\ndata: %b\n\n" % data
