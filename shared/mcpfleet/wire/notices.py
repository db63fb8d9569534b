"""The events of listen streams: each is composed once, and gets the subscription id of each stream.

No `id:` and no `retry:` (M12): a client that saw one would come back by GET.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.filter import ListKind
from mcpfleet.wire.language import content_language
from mcpfleet.wire.reply import event

SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"
"""`mcp_types` has no constant for it."""
_ID: Final = to_json(SUBSCRIPTION_ID_META_KEY) + b":"


@dataclass(frozen=True, slots=True, eq=False)
class Notice:
    """A notification for many streams."""

    head: bytes
    """The part before the subscription's id."""
    tail: bytes
    plain: bytes = b""
    """The whole event for streams of the revisions of 2025, which have no subscription id."""

    def event(self, subscription: bytes) -> bytes:
        """Return the whole event for one stream, whose id is given as JSON (S8)."""
        return self.head + subscription + self.tail


def _notice(method: str, params: Mapping[str, Any] = MappingProxyType({})) -> Notice:
    fields = to_json(dict(params))[1:]
    start = b'event: message\ndata: {"jsonrpc":"2.0","method":"%b"' % method.encode()
    plain = b"%b%b}\n\n" % (start, b',"params":{%b' % fields if params else b"")
    return Notice(b'%b,"params":{"_meta":{%b' % (start, _ID), b"}%b%b}\n\n" % (b"," if params else b"", fields), plain)


LIST_CHANGED: Final[Mapping[ListKind, Notice]] = MappingProxyType(
    {
        "tools": _notice("notifications/tools/list_changed"),
        "prompts": _notice("notifications/prompts/list_changed"),
        "resources": _notice("notifications/resources/list_changed"),
    }
)


def resource_updated(uri: str) -> Notice:
    """Compose the notice that the content under a URI may have changed."""
    return _notice("notifications/resources/updated", {"uri": uri})


def key_changed(notification: str, key: str) -> Notice:
    """Compose an own notification: its key has changed, and that is all that it says (X46)."""
    return _notice(notification, {"key": key})


def task_changed(task: bytes, language: str | None = None) -> Notice:
    """Compose the notice of a task's state, as `tasks/get` would tell it (M73).

    Args:
        task: the members of the task as JSON, on one line.
        language: that of its texts; None where it is not told.
    """
    empty = _notice("notifications/tasks")
    told = b"" if language is None else b",%b" % content_language(language)
    return Notice(empty.head, b"%b},%b}\n\n" % (told, task[1:]))


def acknowledged(notifications: Mapping[str, Any]) -> Notice:
    """Compose a stream's first message: the honoured part of its filter (M58)."""
    return _notice("notifications/subscriptions/acknowledged", {"notifications": notifications})


def subscription_id(identifier: RequestId) -> bytes:
    """Return the id of a subscription, which is its request's, in the type in which it came."""
    return to_json(identifier)


def ended(subscription: bytes, server: bytes) -> bytes:
    """Compose the last event of a stream that the server ends: an empty result, without a reason (D1, S13).

    Args:
        subscription: its id as JSON.
        server: the server's name, as `reply.server_info` composes it.
    """
    result = b'{"_meta":{%b,%b%b},"resultType":"complete"}' % (server, _ID, subscription)
    return event(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (subscription, result))
