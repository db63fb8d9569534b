"""The events of listen streams: composed once, and each stream's own by its subscription's id."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import pytest

from mcpfleet.wire import notices
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.reply import server_info

KEY = "io.modelcontextprotocol/subscriptionId"


def data(event: bytes) -> Any:
    kind, line, *rest = event.split(b"\n")
    assert (kind, rest) == (b"event: message", [b"", b""])  # M12: neither `id:` nor `retry:`
    return json.loads(line.removeprefix(b"data: "))


@pytest.mark.rule("S8")
@pytest.mark.parametrize("identifier", [1, "1", 1.5, 'a\n"b', 2**70])
def test_every_message_carries_the_id_in_its_own_type(identifier: RequestId) -> None:
    mine = notices.subscription_id(identifier)
    told = [
        notices.acknowledged({"toolsListChanged": True}).event(mine),
        *(notice.event(mine) for notice in notices.LIST_CHANGED.values()),
        notices.resource_updated("a:b").event(mine),
    ]
    for message in map(data, told):
        found = message["params"]["_meta"][KEY]
        assert (found, type(found)) == (identifier, type(identifier))
        assert "id" not in message
    last = data(notices.ended(mine, server_info({"name": "library", "version": "1"})))
    assert last["id"] == last["result"]["_meta"][KEY] == identifier
    assert type(last["id"]) is type(identifier)


@pytest.mark.rule("D1", "M19")
def test_the_end_is_an_empty_complete_result_with_the_servers_name() -> None:
    last = data(notices.ended(b"1", server_info({"name": "library", "version": "1"})))
    assert last["result"].keys() == {"_meta", "resultType"}
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][mcp_types.SERVER_INFO_META_KEY] == {"name": "library", "version": "1"}


def test_the_official_types_read_what_is_told() -> None:
    acknowledged = data(notices.acknowledged({"resourceSubscriptions": ["a:b"]}).event(b'"x"'))
    read = mcp_types.SubscriptionsAcknowledgedNotification.model_validate(acknowledged)
    assert read.params.notifications.resource_subscriptions == ["a:b"]
    updated = data(notices.resource_updated("a:ü").event(b'"x"'))
    assert mcp_types.ResourceUpdatedNotification.model_validate(updated).params.uri == "a:ü"
    for kind, notice in notices.LIST_CHANGED.items():
        assert data(notice.event(b"1"))["method"] == f"notifications/{kind}/list_changed"


def plain(notice: notices.Notice) -> Any:
    text = notice.plain.decode()
    assert text.startswith("event: message\ndata: ")
    assert text.endswith("\n\n")
    return json.loads(text.removeprefix("event: message\ndata: "))


@pytest.mark.rule("L13")
def test_for_the_revisions_of_2025_a_change_is_named_and_nothing_more() -> None:
    assert plain(notices.resource_updated("x:y")) == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "x:y"},
    }
    assert plain(notices.LIST_CHANGED["tools"]) == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
