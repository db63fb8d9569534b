"""The arguments that a person types, read by the schema of what takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcpfleet.cli.typed_arguments import WrongArguments, near, parameters, read_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "price": {"type": "number"},
        "new": {"type": "boolean"},
        "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "size": {"enum": ["small", "large"]},
        "floor": {"enum": [1, 2]},
        "colour": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        "where": {"$ref": "#/$defs/Place"},
        "either": {"type": ["integer", "string"]},
        "picture": {"type": "string", "contentEncoding": "base64", "maxLength": 400},
        "lasts": {"type": "string", "pattern": f"^{'(P[0-9]+D)?' * 6}PT[0-9]+H$", "examples": ["PT1H30M"]},
        "code": {"type": "string", "pattern": "^[a-z][0-9]$", "examples": ["b1"]},
        "any": {},
    },
    "additionalProperties": False,
    "$defs": {
        "Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ([], {}),
        (["text=moby dick"], {"text": "moby dick"}),
        (["text=5"], {"text": "5"}),
        (["text=true"], {"text": "true"}),
        (['text="5"'], {"text": "5"}),
        (["text=https://example.com/?a=b"], {"text": "https://example.com/?a=b"}),
        (["text=@@home"], {"text": "@home"}),
        (["count=3"], {"count": 3}),
        (["count=3.0"], {"count": 3}),
        (["price=3", "new=yes"], {"price": 3, "new": True}),
        (["price=1.5", "new=false"], {"price": 1.5, "new": False}),
        (["since=2026-01-02"], {"since": "2026-01-02"}),
        (["since=null"], {"since": None}),
        (["size=large", "floor=2"], {"size": "large", "floor": 2}),
        (["colour=green"], {"colour": "g"}),
        (["tags=a", "tags=b"], {"tags": ["a", "b"]}),
        (["tags=a"], {"tags": ["a"]}),
        (['tags=["a","5"]'], {"tags": ["a", "5"]}),
        (["numbers=3", "numbers=4"], {"numbers": [3, 4]}),
        (['where={"city": "Oslo"}'], {"where": {"city": "Oslo"}}),
        (["either=5"], {"either": 5}),
        (["either=five"], {"either": "five"}),
        (["any=5"], {"any": 5}),
        (["any=five"], {"any": "five"}),
    ],
)
def test_a_value_is_read_as_its_schema_says(pairs: list[str], arguments: dict[str, Any]) -> None:
    assert read_arguments(pairs, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("count=ten", "count: is not an integer"),
        ("count=1.5", "count: is not an integer"),
        ("count=10", "count: is not valid: 10 is greater than the maximum of 9"),
        ("text=", 'text: is not valid: "" is shorter than 1 character'),
        ("new=perhaps", "new: is not true or false"),
        ("since=soon", 'since: is not valid: "soon" is not a "date", such as 2026-01-31'),
        ("lasts=1h", 'lasts: is not valid: "1h" is not written like PT1H30M'),
        ("code=Bx", 'code: is not valid: "Bx" does not match "^[a-z][0-9]$", such as b1'),
        ("picture=hello", "picture: is not Base64; @FILE takes the content of a file"),
        ("size=huge", "size: is not one of small, large"),
        ("numbers=[1,2,3]", "numbers: is not valid"),
        ("numbers=x", "numbers: is not an integer"),
        ("where=Oslo", "where: is not an object in JSON"),
        ("where={}", 'where: is not valid: "city" is a required property'),
        ("kount=1", "kount: there is no such argument; did you mean count?"),
        ("text=@/does/not/exist", "text: the file /does/not/exist cannot be read: No such file or directory"),
        ("text", "'text' is not name=value"),
        ("=text", "'=text' is not name=value"),
    ],
)
def test_a_wrong_value_names_its_argument(pair: str, sentence: str) -> None:
    with pytest.raises(WrongArguments) as raised:
        read_arguments([pair], SCHEMA)
    assert raised.value.problems[0].startswith(sentence)


@pytest.mark.rule("D18")
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_python_takes_for_a_number_and_json_does_not_is_text(text: str) -> None:
    assert read_arguments([f"any={text}"], SCHEMA) == {"any": text}


def test_each_problem_is_told_and_then_how_to_call_it() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a", "b"]}
    with pytest.raises(WrongArguments) as raised:
        read_arguments(["a=x"], schema, usage="f(a: int, b)")
    assert raised.value.problems == ("a: is not an integer", "b: is required", "usage: f(a: int, b)")


def test_a_value_that_is_no_list_is_given_once() -> None:
    with pytest.raises(WrongArguments, match="count: is given more than once"):
        read_arguments(["count=1", "count=2"], SCHEMA)


def test_a_schema_without_properties_takes_any_names_unless_it_is_closed() -> None:
    assert read_arguments(["a=1"], {"type": "object"}) == {"a": 1}
    with pytest.raises(WrongArguments, match="no such argument"):
        read_arguments(["a=1"], {"type": "object"}, closed=True)


def test_a_file_is_read_as_text_as_json_or_as_base64(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("two\nlines")
    (tmp_path / "json").write_text('{"city": "Oslo"}')
    (tmp_path / "picture").write_bytes(b"\x00\xff")
    pairs = [
        f"{name}=@{tmp_path / file}" for name, file in (("text", "text"), ("where", "json"), ("picture", "picture"))
    ]
    assert read_arguments(pairs, SCHEMA) == {"text": "two\nlines", "where": {"city": "Oslo"}, "picture": "AP8="}
    with pytest.raises(WrongArguments, match=r"text: the file .* is not text in UTF-8"):
        read_arguments([f"text=@{tmp_path / 'picture'}"], SCHEMA)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"properties": 5, "required": 5},
        {"properties": {"a": 5}},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"properties": {"a": {"type": "nonsense", "pattern": "("}}},
        {"properties": {"a": {"type": ["string", 5], "enum": 5}}},
    ],
)
def test_a_malformed_schema_takes_what_is_given(schema: Any) -> None:
    assert read_arguments(["a=x"], schema) == {"a": "x"}


def test_a_long_value_is_not_repeated_whole(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x00" * 3000)
    with pytest.raises(WrongArguments, match=r'"A+… \(4,002 characters\) is longer than 400 characters') as raised:
        read_arguments([f"picture=@{tmp_path / 'picture'}"], SCHEMA)
    assert len(raised.value.problems[0]) < 200


def test_parameters_say_in_words_what_they_take() -> None:
    said = {each.name: (each.words, each.rules) for each in parameters(SCHEMA)}
    assert said["lasts"] == ("text", ["such as PT1H30M"])
    assert said["code"] == ("text", ["matches ^[a-z][0-9]$, such as b1"])
    assert said["count"] == ("integer", ["at least 1", "at most 9"])
    assert said["since"] == ("date", [])
    assert said["text"] == ("text", ["not empty"])
    assert said["size"] == ("one of these", [])
    assert said["new"] == ("yes or no", [])
    assert said["any"] == ("any JSON", [])


def test_the_nearest_name_is_proposed() -> None:
    assert near("serch", ["search", "report"]) == "; did you mean search?"
    assert near("x", ["search"]) == ""
