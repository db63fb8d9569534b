"""Composes the results of the Tasks extension (M66 to M68)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.contracts.tasks import Status, TaskView
from mcpfleet.wire.reply import NotSpliceable, result_body

ACKNOWLEDGED: Final = result_body({"resultType": "complete"})
"""The result of `tasks/update` and `tasks/cancel`, without any part of the task (M67)."""


def created(view: TaskView, meta: Mapping[str, Any] | None = None) -> bytes:
    """Return the result of a call that became a task: the task without result, error or input requests (M66)."""
    return result_body({"resultType": "task", **_bare(view)}, meta)


def got(view: TaskView) -> bytes:
    """Return the result of `tasks/get`; a notification has the same members (M73).

    Raises:
        NotSpliceable: the task's stored end is malformed.
    """
    return b'{"_meta":{},"resultType":"complete",%b' % detailed(view)[1:]


def detailed(view: TaskView) -> bytes:
    """Return a task with its input requests, result or error, in their stored bytes.

    Raises:
        NotSpliceable: the task's stored end is malformed.
    """
    more = b""
    if view.status is Status.INPUT_REQUIRED:
        requests = b",".join(b"%b:%b" % (to_json(key), _object(text)) for key, text in view.requests.items())
        more = b',"inputRequests":{%b}' % requests
    elif view.status in (Status.COMPLETED, Status.FAILED):
        member = b"result" if view.status is Status.COMPLETED else b"error"
        more = b',"%b":%b' % (member, _object(view.end or ""))
    return b"%b%b}" % (to_json(_bare(view))[:-1], more)


def _bare(view: TaskView) -> dict[str, Any]:
    fields: dict[str, Any] = {"taskId": view.id, "status": view.status.value}
    if view.message is not None:
        fields["statusMessage"] = view.message
    return fields | {
        "createdAt": _moment(view.created_at),
        "lastUpdatedAt": _moment(view.updated_at),
        "ttlMs": view.ttl_ms,
        "pollIntervalMs": view.poll_ms,
    }


def _moment(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _object(text: str) -> bytes:
    body = text.encode()
    if not body.startswith(b"{") or not body.endswith(b"}") or b"\n" in body or b"\r" in body:
        raise NotSpliceable("what a task ends with must be one line of an object")
    return body
