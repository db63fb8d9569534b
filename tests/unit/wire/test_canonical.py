"""The input of a digest has the same bytes in every process and release, whatever the order of its keys."""

from __future__ import annotations

from mcpfleet.contracts.manifest import canonical


def test_keys_are_sorted_at_every_depth_and_lists_are_not() -> None:
    value = {"b": [{"z": 1, "y": [2, 1]}], "a": {"d": None, "c": "ä"}}
    assert canonical(value) == '{"a":{"c":"ä","d":null},"b":[{"y":[2,1],"z":1}]}'.encode()
