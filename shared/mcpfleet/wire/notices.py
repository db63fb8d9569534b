"""The events of listen streams: each is composed once, and for every stream only its subscription's id is put in.

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
from mcpfleet.wire.reply import event

SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"
"""`mcp_types` has no constant for it."""
_ID: Final = to_json(SUBSCRIPTION_ID_META_KEY) + b":"


@dataclass(frozen=True, slots=True, eq=False)
class Notice:
    """A notification for many streams."""

    head: bytes
    """Up to where the subscription's id stands."""
    tail: bytes
    plain: bytes = b""
    """The whole event for the streams of the revisions of 2025, which have no subscription's id."""

    def event(self, subscription: bytes) -> bytes:
        """The whole event for one stream, whose id is given as JSON (S8)."""
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
    """Say that what is read under a URI may have changed."""
    return _notice("notifications/resources/updated", {"uri": uri})


def task_changed(task: bytes) -> Notice:
    """Say what a task is now, as `tasks/get` would (M73).

    Args:
        task: its members as JSON, one line.
    """
    empty = _notice("notifications/tasks")
    return Notice(empty.head, b"},%b}\n\n" % task[1:])


def acknowledged(notifications: Mapping[str, Any]) -> Notice:
    """Say what a stream honours: its first message (M58)."""
    return _notice("notifications/subscriptions/acknowledged", {"notifications": notifications})


def subscription_id(identifier: RequestId) -> bytes:
    """The id of a subscription, which is its request's, in the type in which that came."""
    return to_json(identifier)


def ended(subscription: bytes, server: bytes) -> bytes:
    """The last event of a stream that the server ends: an empty result, and no word of why (D1, S13).

    Args:
        subscription: its id as JSON.
        server: the server's name, as `reply.server_info` composes it.
    """
    result = b'{"_meta":{%b,%b%b},"resultType":"complete"}' % (server, _ID, subscription)
    return event(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (subscription, result))
