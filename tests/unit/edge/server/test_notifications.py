"""Notifications over HTTP: which are accepted, and what is not looked at (T13 to T15)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.edge.asgi import CAPABILITIES_KEY, MODERN, VERSION_KEY, Post
from tests.unit.edge.server.checks import climb, fails, refusal


def notification(method: str = "notifications/cancelled", **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **members}


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({"requestId": 1, "_meta": {VERSION_KEY: MODERN}}, id="as the TypeScript client sends it"),
        pytest.param({"requestId": 1}, id="no _meta"),
        pytest.param({"requestId": {}, "reason": 5}, id="bad parameters"),
        pytest.param({"_meta": 5}, id="_meta that is no object"),
        pytest.param({"_meta": {CAPABILITIES_KEY: []}}, id="bad capabilities"),
        pytest.param([1], id="parameters in a list"),
    ],
)
def test_t15_a_cancellation_over_http_is_accepted_and_its_payload_ignored(params: Any) -> None:
    assert climb(Post(notification(params=params))).id is None


def test_t4_a_notification_needs_neither_method_nor_name() -> None:
    assert climb(Post(notification(), {"mcp-method": None})).id is None


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/unknown", "tools/list"])
def test_t14_an_unsupported_notification_is_an_empty_400(method: str) -> None:
    assert fails(Post(notification(method))) == (400, None)


@pytest.mark.parametrize("selector", ["2099-01-01", "2025-11-25", ""])
def test_t14_an_unsupported_selector_of_a_notification_is_an_empty_400(selector: str) -> None:
    assert fails(Post(notification(), {"mcp-protocol-version": selector})) == (400, None)


def test_t13_the_selector_of_a_notification_stands_once() -> None:
    post = Post(notification(), {"mcp-protocol-version": MODERN})
    rejection = refusal(post, more=((b"mcp-protocol-version", MODERN.encode()),))
    assert rejection.status == 400
