"""Checks of a request that need no caller (T11, groups 2 to 10). `server.router` calls them in their order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.schema import LOG_LEVELS
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.wire import mirror
from mcpfleet.wire.envelope import Envelope, read_envelope
from mcpfleet.wire.errors import (
    bad_params,
    handshake_is_gone,
    not_acceptable,
    unknown_method,
    unknown_path,
    unsupported_notification,
    unsupported_version,
    wrong_coding,
    wrong_http_method,
    wrong_media_type,
)
from mcpfleet.wire.headers import VERSION, Headers
from mcpfleet.wire.language import ACCEPT_LANGUAGE_META_KEY, check_mirrored
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
    MODERN,
    PROTOCOL_VERSION_META_KEY,
)

_VALUES_REMEMBERED: Final = 256
_REFUSED: Final = re.compile(r"q\s*=\s*0(\.0{0,3})?")
"""The weight 0 of a range in `Accept`."""

_MOST_RANGES: Final = 64
"""Ranges of an `Accept` that are looked at; a head has room for ten thousand."""
_EVENTS: Final = "text/event-stream"
_BOTH: Final = ("application/json", _EVENTS)
_MAY_BE_NULL: Final = ("arguments", "cursor")
"""Parameters that may be null, meaning absent, in every revision (L22)."""

NOTIFICATIONS: Final = frozenset({"notifications/cancelled"})


def check_place(exchange: HttpExchange, endpoints: Mapping[str, str], hosts: AllowedHosts) -> str:
    """Groups 2 and 3: where the request goes, and where it comes from.

    Args:
        exchange: its head is read.
        endpoints: the endpoints' names by their paths.
        hosts: the allowed Hosts and Origins.

    Returns:
        The endpoint's name.

    Raises:
        Rejection: 404 or 403; no id is known yet.
    """
    endpoint = endpoints.get(exchange.path)
    if endpoint is None:
        raise unknown_path()
    hosts.check_host(exchange.headers)
    hosts.check_origin(exchange.headers)
    return endpoint


def check_form(exchange: HttpExchange) -> None:
    """Group 4: method, media type, what the client accepts, coding.

    Raises:
        Rejection: 405, 415 or 406; no id is known yet.
    """
    if exchange.http_method != "POST":
        raise wrong_http_method("POST")
    _check_media(exchange.headers)
    _check_accept(exchange.headers, _BOTH)
    _check_coding(exchange.headers)


def read_message(body: bytes, message: Any) -> Envelope:
    """Group 6: one JSON-RPC request or notification, in which null stands for nothing (L22).

    Raises:
        Rejection: -32600 or -32602.
    """
    envelope = read_envelope(body, message)
    _leave_out_nulls(envelope.params)
    return envelope


def check_newest(exchange: Exchange, served: Sequence[str], *, body_version_wins: bool) -> None:
    """Groups 7 to 10 of a request of 2026-07-28: its `_meta`, what headers mirror, its version, method and parameters.

    Args:
        exchange: its message and method are known.
        served: the revisions that the endpoint serves.
        body_version_wins: a version header that differs from the body is let through (D5).

    Raises:
        Rejection: with the code of the first check that fails.
    """
    message, headers, method = exchange.message, exchange.headers, exchange.method
    _check_meta(message.meta)
    version = message.meta[PROTOCOL_VERSION_META_KEY]
    if not body_version_wins:
        mirror.check_version(headers, version)
    mirror.check_method_and_name(headers, message, method.names if method is not None else None)
    if ACCEPT_LANGUAGE_META_KEY in message.meta and (method is None or method.admits):
        check_mirrored(headers, message.meta[ACCEPT_LANGUAGE_META_KEY])
    if version != MODERN:
        raise unsupported_version(version, served)
    if message.method == "initialize":
        raise handshake_is_gone(served)
    if method is None:
        raise unknown_method()
    method.check(message.params)


def check_notification(headers: Headers, message: Envelope, served: Sequence[str]) -> None:
    """T13, T14, T15: accept a cancellation whatever it says; its version, if stated, is one that the endpoint serves.

    Raises:
        Rejection: 400 without a body.
    """
    version = headers.version()
    if version == MODERN:
        headers.single(VERSION)  # M5: it mirrors nothing here, and stands once all the same
    is_served = version in served if version is not None else MODERN in served
    if not is_served or message.method not in NOTIFICATIONS:
        raise unsupported_notification()


def _leave_out_nulls(params: dict[str, Any]) -> None:
    context = params.get("context")
    for members in (params, context) if isinstance(context, dict) else (params,):
        for name in _MAY_BE_NULL:
            if name in members and members[name] is None:
                del members[name]


def check_events_welcome(exchange: HttpExchange) -> None:
    """Check that a GET accepts a stream of events (M76).

    Raises:
        Rejection: 406.
    """
    _check_accept(exchange.headers, (_EVENTS,))


def _check_media(headers: Headers) -> None:
    media = headers.all(b"content-type")
    if len(media) != 1 or not _is_json(media[0]):
        raise wrong_media_type()


def _check_accept(headers: Headers, kinds: tuple[str, ...]) -> None:
    """Hold `Accept` to all of these kinds; without one everything is acceptable (T34; RFC 9110, 12.5.1)."""
    accepted = headers.all(b"accept")
    if accepted and not _welcomes(accepted, kinds):
        raise not_acceptable(kinds)


def _check_coding(headers: Headers) -> None:
    if any(coding.strip().lower() != b"identity" for coding in headers.all(b"content-encoding")):
        raise wrong_coding()


# Clients send the same few values for ever, so each is read once.


@lru_cache(maxsize=_VALUES_REMEMBERED)
def _is_json(value: bytes) -> bool:
    kind, _, parameters = value.decode("latin-1").partition(";")
    charset = parameters.strip().lower()
    return kind.strip().lower() == "application/json" and charset in ("", "charset=utf-8", 'charset="utf-8"')


@lru_cache(maxsize=_VALUES_REMEMBERED)
def _welcomes(values: tuple[bytes, ...], kinds: tuple[str, ...]) -> bool:
    """Return whether a client accepts all these kinds: a POST needs both (T2), and `*/*` counts (M13)."""
    weights: dict[str, bool] = {}
    for part in b",".join(values).decode("latin-1").split(",", _MOST_RANGES)[:_MOST_RANGES]:
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weights[kind] = not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return all(_weighs(weights, kind) for kind in kinds)


def _weighs(weights: dict[str, bool], kind: str) -> bool:
    """Return whether the most specific range that covers a kind has a weight above 0 (RFC 9110, 12.5.1)."""
    ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
    return next((weights[each] for each in ranges if each in weights), False)


def _check_meta(meta: dict[str, Any]) -> None:
    if not isinstance(meta.get(PROTOCOL_VERSION_META_KEY), str):
        raise bad_params(f"_meta lacks {PROTOCOL_VERSION_META_KEY}")
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    if not isinstance(capabilities, dict):
        raise bad_params(f"_meta lacks {CLIENT_CAPABILITIES_META_KEY}")
    extensions = capabilities.get("extensions", {})
    if not isinstance(extensions, dict) or not all(isinstance(value, dict) for value in extensions.values()):
        raise bad_params("`extensions` must be an object whose values are objects")
    level = meta.get(LOG_LEVEL_META_KEY, "info")
    if level not in LOG_LEVELS:
        raise bad_params("unknown log level")
