"""MCPFLEET_ENDPOINTS."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.endpoints import Endpoint, EndpointSettings
from mcpfleet.process.errors import ConfigurationError


def load(monkeypatch: pytest.MonkeyPatch, value: Any) -> EndpointSettings:
    monkeypatch.setenv("MCPFLEET_ENDPOINTS", value if isinstance(value, str) else json.dumps(value))
    return EndpointSettings.load()


def test_by_default_one_endpoint_shows_every_pool() -> None:
    assert dict(EndpointSettings().endpoints) == {"mcp": Endpoint(path="/mcp", pools=("*",))}


def test_it_is_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    books = {
        "path": "/teams/books",
        "pools": ["library", "archive"],
        "names": {"archive": ["scan_*"]},
        "title": "Books",
        "version": "3",
        "instructions": "Read first.",
    }
    endpoint = load(monkeypatch, {"books": books}).endpoints["books"]
    assert endpoint.model_dump(mode="json", exclude_unset=True) == books


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "at least 1"),
        ({"a": {}}, "a.path: "),
        ({"A": {"path": "/a"}}, "A"),
        ({"a": {"path": "a"}}, "a.path: "),
        ({"a": {"path": "/a/"}}, "a.path: "),
        ({"a": {"path": "/a b"}}, "a.path: "),
        ({"a": {"path": "/a?b"}}, "a.path: "),
        ({"a": {"path": "/a", "pools": ["A"]}}, "a.pools.0: "),
        ({"a": {"path": "/a", "pools": "b"}}, "a.pools: "),
        ({"a": {"path": "/a", "names": {"b": [""]}}}, "a.names.b.0: "),
        ({"a": {"path": "/a", "pools": ["b"], "names": {"c": ["*"]}}}, "a: Value error, names: 'c'"),
        ({"a": {"path": "/a", "pol": ["b"]}}, "a.pol: "),
        ({"a": {"path": "/x"}, "b": {"path": "/x"}}, "b.path: /x is the path of a"),
    ],
)
def test_a_mistake_names_the_field(monkeypatch: pytest.MonkeyPatch, value: Any, field: str) -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_ENDPOINTS") as raised:
        load(monkeypatch, value)
    assert field in str(raised.value)


@pytest.mark.parametrize(
    ("pools", "pool", "admits"),
    [
        (("*",), "any", True),
        (("a", "b"), "b", True),
        (("a", "b"), "c", False),
        ((), "a", False),
        (("a", "*"), "c", True),
    ],
)
def test_which_pools_may_serve_it(pools: tuple[str, ...], pool: str, admits: bool) -> None:
    assert Endpoint(path="/mcp", pools=pools).admits(pool) is admits


@pytest.mark.parametrize(
    ("pool", "name", "allows"),
    [
        ("a", "books_search", True),
        ("a", "read", True),
        ("a", "Books_search", False),
        ("a", "ready", False),
        ("b", "anything", True),
    ],
)
def test_which_names_a_pool_may_serve(pool: str, name: str, allows: bool) -> None:
    endpoint = Endpoint(path="/mcp", names={"a": ("books_*", "read")})
    assert endpoint.allows(pool, name) is allows


def test_equal_settings_have_equal_digests_and_others_do_not() -> None:
    one = Endpoint(path="/mcp", names={"a": ("x",), "b": ("y",)})
    assert one.digest == Endpoint(path="/mcp", names={"b": ("y",), "a": ("x",)}).digest
    assert one.digest != Endpoint(path="/mcp").digest
