"""The filter of a listen stream: its form, its bounds, and what of it is honoured and echoed."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.filter import LONGEST_URI, Filter, read_filter

EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def code(value: Any, **options: Any) -> int | None:
    with pytest.raises(Rejection) as raised:
        read_filter(value, **options)
    return raised.value.code


@pytest.mark.rule("S5")
@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "all",
        {"toolsListChanged": 1},
        {"promptsListChanged": "true"},
        {"resourcesListChanged": None},
        {"resourceSubscriptions": "file:///a"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": None},
        {"taskIds": {"a": 1}},
        {"resourceSubscriptions": ["x" * (LONGEST_URI + 1)]},
    ],
)
def test_another_form_is_refused(value: Any) -> None:
    assert code(value) == -32602


@pytest.mark.rule("S5")
def test_false_is_absence_and_unknown_fields_mean_nothing() -> None:
    assert not read_filter({})
    assert not read_filter({"toolsListChanged": False, "resourceSubscriptions": [], "weather": 3})


@pytest.mark.rule("N8", "N20")
def test_so_many_different_uris_and_tasks_and_no_more() -> None:
    uris = [f"a:{number}" for number in range(3)]
    assert read_filter({"resourceSubscriptions": uris * 2}, most=3).uris == tuple(uris)
    assert code({"resourceSubscriptions": uris}, most=2) == -32602
    assert code({"taskIds": uris}, most=2) == -32602


@pytest.mark.rule("S5", "M44")
def test_uris_are_echoed_as_the_client_wrote_them() -> None:
    odd = ["FILE:///A/../b", "%7euser:x", "not a uri"]
    assert read_filter({"resourceSubscriptions": odd}).echo() == {"resourceSubscriptions": odd}


@pytest.mark.rule("S7")
def test_what_is_honoured_is_what_was_asked_and_is_supported() -> None:
    asked = read_filter(
        {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a:b"], "taskIds": ["1"]}
    )
    assert asked.supported(EVERYTHING, tasks=False).echo() == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourceSubscriptions": ["a:b"],
    }
    assert asked.supported({"tools": {"listChanged": True}}, tasks=False).echo() == {"toolsListChanged": True}
    assert asked.supported({}, tasks=False) == Filter()
    assert asked.supported({}, tasks=True).echo() == {"taskIds": ["1"]}
