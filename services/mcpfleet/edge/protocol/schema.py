"""The form that each method's parameters must have (T11, group 10). Each check raises `Rejection` -32602.

A check is cheap: it needs neither the caller nor the target. Code behind it may rely on the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpfleet.wire.errors import bad_params
from mcpfleet.wire.filter import LONGEST_URI, read_filter

Params = Mapping[str, Any]

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LONGEST_STREAM_ID: Final = 1_024
"""Characters of a listen request's id, which every message of its stream repeats."""


def no_parameters(_params: Params) -> None:
    """Accept any parameters: the method reads none."""


def list_page(params: Params) -> None:
    """Check a list: the cursor of the page."""
    if not isinstance(params.get("cursor", ""), str):
        raise bad_params("`cursor` must be a string")


def call_tool(params: Params) -> None:
    """Check `tools/call`."""
    _string(params, "name")
    if not isinstance(params.get("arguments", {}), dict):
        raise bad_params("`arguments` must be an object")
    _rounds(params)


def get_prompt(params: Params) -> None:
    """Check `prompts/get`."""
    _string(params, "name")
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
        raise bad_params("`arguments` must be an object of strings")
    _rounds(params)


def read_resource(params: Params) -> None:
    """Check `resources/read`."""
    _string(params, "uri")
    if not 0 < len(params["uri"]) <= LONGEST_URI:
        raise bad_params(f"`uri` must have 1 to {LONGEST_URI} characters")
    _rounds(params)


def watched_uri(params: Params) -> None:
    """Check `resources/subscribe`, `resources/unsubscribe` and `skills/get`: a URI."""
    uri = params.get("uri")
    if not isinstance(uri, str) or not 0 < len(uri) <= LONGEST_URI:
        raise bad_params(f"`uri` must have 1 to {LONGEST_URI} characters")


def directory_page(params: Params) -> None:
    """Check `resources/directory/read`."""
    watched_uri(params)
    list_page(params)


def log_level(params: Params) -> None:
    """Check `logging/setLevel`."""
    if params.get("level") not in LOG_LEVELS:
        raise bad_params("unknown log level")


def complete(params: Params) -> None:
    """Check `completion/complete`."""
    ref, argument, context = params.get("ref"), params.get("argument"), params.get("context", {})
    if not _names_target(ref):
        raise bad_params("`ref` must name a prompt or a resource")
    if not isinstance(argument, dict) or not all(isinstance(argument.get(each), str) for each in ("name", "value")):
        raise bad_params("`argument` must have a name and a value")
    settled = context.get("arguments", {}) if isinstance(context, dict) else None
    if not isinstance(settled, dict) or not all(isinstance(value, str) for value in settled.values()):
        raise bad_params("`context.arguments` must be an object of strings")


def _names_target(ref: Any) -> bool:
    """Return whether a reference has a known type, and the member that this type needs."""
    kind = ref.get("type") if isinstance(ref, dict) else None
    return isinstance(kind, str) and kind in _REFERENCES and isinstance(ref.get(_REFERENCES[kind]), str)


def listen(params: Params) -> None:
    """Check `subscriptions/listen`."""
    read_filter(params.get("notifications"))


def task(params: Params) -> None:
    """Check `tasks/get` and `tasks/cancel`."""
    _string(params, "taskId")


def update_task(params: Params) -> None:
    """Check `tasks/update`."""
    _string(params, "taskId")
    if not isinstance(params.get("inputResponses"), dict):
        raise bad_params("`inputResponses` must be an object")


def _rounds(params: Params) -> None:
    """Check the members that continue a round (M50, M51)."""
    if not isinstance(params.get("inputResponses", {}), dict):
        raise bad_params("`inputResponses` must be an object")
    if not isinstance(params.get("requestState", ""), str):
        raise bad_params("`requestState` must be a string")


def _string(params: Params, name: str) -> None:
    if not isinstance(params.get(name), str):
        raise bad_params(f"`{name}` must be a string")


_REFERENCES: Final = {"ref/prompt": "name", "ref/resource": "uri"}
