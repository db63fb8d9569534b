"""The arguments that `mcpfleet call` reads from `name=value`."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.cli.options import read_arguments


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ([], {}),
        (["query=moby"], {"query": "moby"}),
        (["query=moby dick"], {"query": "moby dick"}),
        (["book=3", "new=true", "shelf=null"], {"book": 3, "new": True, "shelf": None}),
        (["price=1.5"], {"price": 1.5}),
        (['text="3"'], {"text": "3"}),
        (["list=[1,2]", 'map={"a":1}'], {"list": [1, 2], "map": {"a": 1}}),
        (["url=https://example.com/?a=b"], {"url": "https://example.com/?a=b"}),
        (["empty="], {"empty": ""}),
        (["text={unfinished"], {"text": "{unfinished"}),
        (["a=1", "a=2"], {"a": 2}),
    ],
)
def test_a_value_that_is_json_is_taken_as_such(pairs: list[str], arguments: dict[str, Any]) -> None:
    assert read_arguments(pairs) == arguments


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_d18_what_python_takes_for_a_number_and_json_does_not_is_text(text: str) -> None:
    assert read_arguments([f"value={text}"]) == {"value": text}


@pytest.mark.parametrize("pair", ["query", "=moby", ""])
def test_what_is_no_pair_is_an_error_that_shows_it(pair: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        read_arguments([pair])
