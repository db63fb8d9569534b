"""The order in which a request is checked: first failure wins (T11), read from top to bottom.

`check_place` and `check_form` need no body, `check_message` no caller. Between them `http.app` reads the credential,
and has it judged before it reads a large body (groups 4b and 4c). The checks of the caller, its view and its limits
follow in `methods`, those of the target in `uses`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from mcpfleet.edge.protocol.schema import METHODS, NOTIFICATIONS
from mcpfleet.edge.transport.allowed_hosts import Doors
from mcpfleet.edge.transport.client import Client
from mcpfleet.wire import mirror
from mcpfleet.wire.envelope import Envelope, read_envelope
from mcpfleet.wire.errors import (
    Rejection,
    bad_params,
    handshake_is_gone,
    not_acceptable,
    unknown_method,
    unknown_path,
    unsupported_version,
    wrong_coding,
    wrong_http_method,
    wrong_media_type,
)
from mcpfleet.wire.headers import SESSION, VERSION, Headers
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    LEGACY,
    LOG_LEVEL_META_KEY,
    MODERN,
    PROTOCOL_VERSION_META_KEY,
    SERVED,
    SERVED_WITH_LEGACY,
)

_VALUES_REMEMBERED: Final = 256
_REFUSED: Final = re.compile(r"q\s*=\s*0(\.0{0,3})?")
"""The weight 0 of a range in `Accept`."""

_MOST_RANGES: Final = 64
"""Ranges of an `Accept` that are looked at; a head has room for ten thousand."""
_EVENTS: Final = "text/event-stream"
_BOTH: Final = ("application/json", _EVENTS)
_MODERN_PARAMS: Final = ("inputResponses", "requestState")
_MAY_BE_NULL: Final = ("arguments", "cursor")
"""Parameters of which null is as good as nothing, in every revision (L22)."""

LOG_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def check_place(client: Client, endpoints: Mapping[str, str], doors: Doors) -> str:
    """Groups 2 and 3: where the request goes, and where it comes from.

    Args:
        client: who asks.
        endpoints: the endpoints' names by their paths.
        doors: the Hosts and Origins that may come in.

    Returns:
        The endpoint's name.

    Raises:
        Rejection: 404 or 403; no id is known yet.
    """
    endpoint = endpoints.get(client.path)
    if endpoint is None:
        raise unknown_path()
    doors.check_host(client.headers)
    doors.check_origin(client.headers)
    return endpoint


def check_form(client: Client) -> None:
    """Group 4: method, media type, what the client accepts, coding.

    Raises:
        Rejection: 405, 415 or 406; no id is known yet.
    """
    if client.method != "POST":
        raise wrong_http_method("POST")
    _check_media(client.headers)
    _check_accept(client.headers, _BOTH)
    _check_coding(client.headers)


def check_message(
    headers: Headers,
    body: bytes,
    message: Any,
    *,
    legacy: bool = False,
    sessions: bool = False,
    body_version_wins: bool = False,
) -> Envelope:
    """Groups 6 to 10 of a body that is JSON: what the message alone can tell.

    Args:
        headers: the request's.
        body: as it came.
        message: what it says.
        legacy: the revisions of 2025 are served besides.
        sessions: a request in a session needs no version header: it is of the session's revision (L4).
        body_version_wins: a version header that differs from the body is let through (D5).

    Raises:
        Rejection: whose id, where one could be read, is the message's.
    """
    envelope = read_envelope(body, message)
    _leave_out_nulls(envelope.params)
    served = SERVED_WITH_LEGACY if legacy else SERVED
    in_session = sessions and bool(headers.all(SESSION))
    if envelope.id is None:
        return _check_notification(headers, envelope, served, in_session=in_session)
    revision = _revision(headers, envelope, served, in_session=in_session)
    if revision != MODERN:
        return _as_legacy(envelope, revision)
    _check_meta(envelope.meta)
    if not body_version_wins:
        mirror.check_version(headers, envelope.meta[PROTOCOL_VERSION_META_KEY])
    mirror.check_method_and_name(headers, envelope)
    if envelope.meta[PROTOCOL_VERSION_META_KEY] != MODERN:
        raise unsupported_version(envelope.meta[PROTOCOL_VERSION_META_KEY], served)
    if envelope.method == "initialize":
        raise handshake_is_gone(served)
    if envelope.method not in METHODS:
        raise unknown_method()
    METHODS[envelope.method].check(envelope.params)
    return envelope


def _leave_out_nulls(params: dict[str, Any]) -> None:
    context = params.get("context")
    for members in (params, context) if isinstance(context, dict) else (params,):
        for name in _MAY_BE_NULL:
            if name in members and members[name] is None:
                del members[name]


def check_events_welcome(client: Client) -> None:
    """What a GET must accept (M76).

    Raises:
        Rejection: 406.
    """
    _check_accept(client.headers, (_EVENTS,))


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


def _check_notification(headers: Headers, envelope: Envelope, served: Sequence[str], *, in_session: bool) -> Envelope:
    """T13, T14, T15: a cancellation over HTTP is accepted whatever it says; its version, if stated, is one of ours.

    Of the revisions of 2025 every notification is accepted, and without a session none means anything.
    """
    version = headers.version()
    if version == MODERN:
        headers.single(VERSION)  # M5: it mirrors nothing here, and stands once all the same
    if version is not None and version not in served:
        raise Rejection(400)
    if version is not None and version in LEGACY:
        return envelope._replace(revision=version)
    if in_session and version is None:
        return envelope._replace(revision=LEGACY[0])
    if envelope.method not in NOTIFICATIONS:
        raise Rejection(400)
    return envelope


# Clients send the same few values for ever, so each is read once.


@lru_cache(maxsize=_VALUES_REMEMBERED)
def _is_json(value: bytes) -> bool:
    kind, _, parameters = value.decode("latin-1").partition(";")
    charset = parameters.strip().lower()
    return kind.strip().lower() == "application/json" and charset in ("", "charset=utf-8", 'charset="utf-8"')


@lru_cache(maxsize=_VALUES_REMEMBERED)
def _welcomes(values: tuple[bytes, ...], kinds: tuple[str, ...]) -> bool:
    """Whether all of these kinds are: of a POST's answer both, since the server chooses (T2); `*/*` counts (M13)."""
    weights: dict[str, bool] = {}
    for part in b",".join(values).decode("latin-1").split(",", _MOST_RANGES)[:_MOST_RANGES]:
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weights[kind] = not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return all(_weighs(weights, kind) for kind in kinds)


def _weighs(weights: dict[str, bool], kind: str) -> bool:
    """Whether the most specific range that covers a kind has a weight above 0 (RFC 9110, 12.5.1)."""
    ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
    return next((weights[each] for each in ranges if each in weights), False)


def _revision(headers: Headers, envelope: Envelope, served: Sequence[str], *, in_session: bool) -> str:
    """Choose the revision, from the body first (M1): what claims to be modern there, or in its header, is modern.

    Raises:
        Rejection: -32022 for a revision that is not served.
    """
    if PROTOCOL_VERSION_META_KEY in envelope.meta:
        return MODERN
    if envelope.method == "initialize":
        return _agreed(envelope.params.get("protocolVersion"), headers, served)
    stated = headers.version()
    if stated is not None and stated not in served:
        raise unsupported_version(stated, served)
    return stated or (LEGACY[0] if in_session else MODERN)


def _as_legacy(envelope: Envelope, revision: str) -> Envelope:
    """A request of 2025: it says nothing of its client in `_meta`, and what only modern ones bring along is ignored."""
    params = {
        name: value for name, value in envelope.params.items() if name not in _MODERN_PARAMS and value is not None
    }
    meta = {name: value for name, value in envelope.meta.items() if name != LOG_LEVEL_META_KEY}
    meta |= {PROTOCOL_VERSION_META_KEY: revision, CLIENT_CAPABILITIES_META_KEY: {}}
    return envelope._replace(params=params, meta=meta, revision=revision)


def _agreed(requested: Any, headers: Headers, served: Sequence[str]) -> str:
    """The revision of a handshake: the one that was asked for, else the header's, else the newest of 2025 (L3, M74).

    A header that says anything else does not matter: nothing was agreed on yet that it could state (L20).
    """
    legacy = [version for version in served if version in LEGACY]
    if not legacy:
        raise unsupported_version(requested if isinstance(requested, str) else None, served)
    if requested in legacy:
        return str(requested)
    try:
        stated = headers.version()
    except Rejection:
        stated = None
    return stated if stated in legacy else legacy[0]


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
    if not isinstance(level, str) or level not in LOG_LEVELS:
        raise bad_params("unknown log level")
