"""The methods of 2026-07-28 that are served, and the form that each one's parameters must have (T11, group 10).

The check is cheap: it needs neither the caller nor the target. What it lets through, the code behind it may rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from mcpfleet.wire.errors import bad_params
from mcpfleet.wire.filter import LONGEST_URI, read_filter

Params = Mapping[str, Any]
Check = Callable[[Params], None]

LONGEST_STREAM_ID: Final = 1_024
"""Characters of a listen request's id, which every message of its stream repeats."""


@dataclass(frozen=True, slots=True)
class Method:
    """What is known of a method before anybody looks at who asks."""

    capability: str | None
    """What the endpoint must offer for it to exist (M14)."""
    check: Check
    """Raises `Rejection` -32602 where the parameters have another form."""


def _nothing(_params: Params) -> None:
    pass


def _list(params: Params) -> None:
    if not isinstance(params.get("cursor", ""), str):
        raise bad_params("`cursor` must be a string")


def _call(params: Params) -> None:
    _string(params, "name")
    if not isinstance(params.get("arguments", {}), dict):
        raise bad_params("`arguments` must be an object")
    _rounds(params)


def _get(params: Params) -> None:
    _string(params, "name")
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
        raise bad_params("`arguments` must be an object of strings")
    _rounds(params)


def _read(params: Params) -> None:
    _string(params, "uri")
    if not 0 < len(params["uri"]) <= LONGEST_URI:
        raise bad_params(f"`uri` must have 1 to {LONGEST_URI} characters")
    _rounds(params)


def _complete(params: Params) -> None:
    ref, argument, context = params.get("ref"), params.get("argument"), params.get("context", {})
    if not _names_target(ref):
        raise bad_params("`ref` must name a prompt or a resource")
    if not isinstance(argument, dict) or not all(isinstance(argument.get(each), str) for each in ("name", "value")):
        raise bad_params("`argument` must have a name and a value")
    settled = context.get("arguments", {}) if isinstance(context, dict) else None
    if not isinstance(settled, dict) or not all(isinstance(value, str) for value in settled.values()):
        raise bad_params("`context.arguments` must be an object of strings")


def _names_target(ref: Any) -> bool:
    """Whether a reference is of a known type, and has the member that this type needs."""
    kind = ref.get("type") if isinstance(ref, dict) else None
    return isinstance(kind, str) and kind in _REFERENCES and isinstance(ref.get(_REFERENCES[kind]), str)


def _listen(params: Params) -> None:
    read_filter(params.get("notifications"))


def _task(params: Params) -> None:
    _string(params, "taskId")


def _update(params: Params) -> None:
    _string(params, "taskId")
    if not isinstance(params.get("inputResponses"), dict):
        raise bad_params("`inputResponses` must be an object")


def _rounds(params: Params) -> None:
    """What a retry brings along (M50, M51)."""
    if not isinstance(params.get("inputResponses", {}), dict):
        raise bad_params("`inputResponses` must be an object")
    if not isinstance(params.get("requestState", ""), str):
        raise bad_params("`requestState` must be a string")


def _string(params: Params, name: str) -> None:
    if not isinstance(params.get(name), str):
        raise bad_params(f"`{name}` must be a string")


OF_TASKS: Final = "tasks"
"""Stands where a method's capability does: an endpoint has tasks beyond the tools that make some (K12)."""
_REFERENCES: Final = {"ref/prompt": "name", "ref/resource": "uri"}

METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "server/discover": Method(None, _nothing),
        "tools/list": Method("tools", _list),
        "tools/call": Method("tools", _call),
        "resources/list": Method("resources", _list),
        "resources/templates/list": Method("resources", _list),
        "resources/read": Method("resources", _read),
        "prompts/list": Method("prompts", _list),
        "prompts/get": Method("prompts", _get),
        "completion/complete": Method("completions", _complete),
        "subscriptions/listen": Method(None, _listen),
        # The one extension that is served.
        "tasks/get": Method(OF_TASKS, _task),
        "tasks/update": Method(OF_TASKS, _update),
        "tasks/cancel": Method(OF_TASKS, _task),
    }
)
NOTIFICATIONS: Final = frozenset({"notifications/cancelled"})
