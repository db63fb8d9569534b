"""The names that an application's own extensions may have: none of MCP's own, in any revision (X41, X42)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcpfleet.app.errors import Mistake
from mcpfleet.wire.reply import written

LARGEST_SETTINGS: Final = 4_096
"""Bytes of an extension's settings as JSON (X41)."""
LONGEST: Final = 128
"""Characters of a method's name, a notification's name, a filter's field or a parameter."""
LONGEST_IDENTIFIER: Final = 256
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER: Final = re.compile(rf"({_LABEL}(?:\.{_LABEL})*)/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SEGMENT: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_METHOD: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]*(?:/{_SEGMENT})+")
_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MCP: Final = frozenset({"mcp", "modelcontextprotocol"})
"""Second labels of prefixes that MCP keeps for itself."""
_NOTIFICATIONS: Final = "notifications/"
_RESERVED: Final = frozenset(
    {
        "completion", "elicitation", "experimental", "extensions", "events", "initialize", "logging", "mcp",
        "messages", "notifications", "ping", "prompts", "resources", "roots", "rpc", "sampling", "server", "skills",
        "subscriptions", "tasks", "tools", "triggers", "ui",
    }
)  # fmt: skip
"""The first parts of MCP's own methods, in any revision and official extension, and of some that may come."""
_RESERVED_NOTIFICATIONS: Final = _RESERVED | {"cancelled", "initialized", "message", "progress"}
_FIELDS: Final = frozenset(
    {"promptsListChanged", "resourceSubscriptions", "resourcesListChanged", "taskIds", "toolsListChanged"}
)
"""The fields of MCP's own filter."""


def check_identifier(name: str) -> None:
    """Check the identifier of an extension, by the rules for keys of `_meta` with a prefix.

    Raises:
        Mistake: it has another form, or is MCP's own.
    """
    matched = _IDENTIFIER.fullmatch(name)
    if matched is None or len(name) > LONGEST_IDENTIFIER:
        raise Mistake(
            f"the identifier {name!r} must be a domain of yours backwards, a slash and a name, such as "
            f"`com.example/stock`, in up to {LONGEST_IDENTIFIER} characters"
        )
    labels = matched[1].lower().split(".")
    if not _MCP.isdisjoint(labels[:2]):
        raise Mistake(f"the identifier {name!r} has a prefix of MCP's own: take a domain of yours")


def check_method(name: str) -> None:
    """Check the name of an extension's method.

    Raises:
        Mistake: it has another form, or its first part is MCP's own.
    """
    if not _METHOD.fullmatch(name) or len(name) > LONGEST:
        raise Mistake(
            f"the method {name!r} must have two parts or more with slashes between them, such as `stock/reserve`, of "
            f"A-Z a-z 0-9 _ - . and up to {LONGEST} characters"
        )
    _refuse_reserved("method", name, name.partition("/")[0], _RESERVED)


def check_notification(name: str) -> None:
    """Check the name of an extension's notification.

    Raises:
        Mistake: it has another form, or its second part is MCP's own.
    """
    rest = name.removeprefix(_NOTIFICATIONS)
    if rest == name or not _METHOD.fullmatch(name) or len(name) > LONGEST:
        raise Mistake(
            f"the notification {name!r} must begin with `{_NOTIFICATIONS}`, such as `notifications/stock/changed`, and "
            f"have only A-Z a-z 0-9 _ - . / and up to {LONGEST} characters"
        )
    _refuse_reserved("notification", name, rest.partition("/")[0], _RESERVED_NOTIFICATIONS)


def check_filter(field: str) -> None:
    """Check the field of a listen stream's filter.

    Raises:
        Mistake: it has another form, or is MCP's own.
    """
    if not _FIELD.fullmatch(field) or len(field) > LONGEST:
        raise Mistake(
            f"the filter {field!r} must be a name such as `stockItems`, of A-Z a-z 0-9 _ and up to {LONGEST} characters"
        )
    if field in _FIELDS:
        raise Mistake(f"the filter {field!r} is MCP's own: take a name of your extension's")


def check_settings(what: str, settings: object) -> dict[str, Any]:
    """Return what is advertised of an extension, checked.

    Args:
        what: names it in the error.
        settings: the settings.

    Raises:
        Mistake: they are no JSON object, or too large.
    """
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise Mistake(f"{what} must be an object (a dict with texts as keys), not {type(settings).__name__}")
    try:
        size = len(written(settings))
    except ValueError as error:
        raise Mistake(f"{what} cannot be written as JSON: {error}") from error
    if size > LARGEST_SETTINGS:
        raise Mistake(f"{what} has {size} bytes as JSON, and at most {LARGEST_SETTINGS} travel: send more by a method")
    return dict(settings)


def _refuse_reserved(what: str, name: str, first: str, reserved: frozenset[str]) -> None:
    if first.partition(".")[0].lower() in reserved:
        raise Mistake(f"the {what} {name!r} has a name of MCP's own ({first!r}): begin with your extension's")
