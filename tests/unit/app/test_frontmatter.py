"""The frontmatter of a SKILL.md: what all readers of YAML read alike becomes JSON, and the rest is refused (X27)."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from mcpfleet.app.errors import Mistake
from mcpfleet.app.frontmatter import LONGEST, frontmatter


def read(fields: str) -> Any:
    return frontmatter(f"---\n{fields}\n---\n\n# Text\n")


@pytest.mark.rule("X27")
def test_all_fields_become_json_as_they_are_written() -> None:
    found = read(
        """name: pdf
description: >-
  Extract text,
  and fill forms.
license: "Apache-2.0"
metadata:
  version: '1.0'
  tags: [a, "b", 3]
  empty:
  deep: {x: [{k: null}], z: -1.5}
  text: |
    two
    lines
  flag: true"""
    )
    assert found == {
        "name": "pdf",
        "description": "Extract text, and fill forms.",
        "license": "Apache-2.0",
        "metadata": {
            "version": "1.0",
            "tags": ["a", "b", 3],
            "empty": None,
            "deep": {"x": [{"k": None}], "z": -1.5},
            "text": "two\nlines\n",
            "flag": True,
        },
    }


@pytest.mark.rule("X27")
@pytest.mark.parametrize("text", ["# Text\n", "---\nname: a\n", " ---\nname: a\n---\n", "\ufeff---\na: b\n---\n", ""])
def test_a_file_without_a_fenced_frontmatter_is_refused(text: str) -> None:
    with pytest.raises(Mistake, match="must begin with a frontmatter"):
        frontmatter(text)


@pytest.mark.rule("X27")
def test_line_ends_of_windows_and_a_file_that_ends_at_the_fence_are_read() -> None:
    assert frontmatter("---\r\na: b\r\nc: d\r\n---  ") == {"a": "b", "c": "d"}


DIFFERENT = [
    "yes", "Yes", "on", "NO", "off", "y", "N", "017", "0o17", "08", "0b11", "0x_f", "1:30", "190:20:30", "1_000",
    "12e3", "1.5e3", "1e+3", "-.5", ".5", "1_0.5", "2026-01-31", "2026-1-31T10:00:00Z", "=", "<<", "9007199254740993",
    "1.0e+400",
]  # fmt: skip


@pytest.mark.rule("X27")
@pytest.mark.parametrize("scalar", DIFFERENT)
def test_a_plain_scalar_that_readers_read_differently_is_refused(scalar: str) -> None:
    """The sentence has the line and the remedy; with quotes it is a text."""
    with pytest.raises(Mistake, match=rf"line 3: .*`{re.escape(scalar)}` differently: quote it"):
        read(f"a: b\nx: {scalar}")
    assert read(f"x: '{scalar}'") == {"x": scalar}


@pytest.mark.rule("X27")
@pytest.mark.parametrize("scalar", [".inf", "-.Inf", ".nan", ".NaN"])
def test_numbers_that_json_lacks_are_refused(scalar: str) -> None:
    with pytest.raises(Mistake, match="no number that JSON has"):
        read(f"x: {scalar}")


@pytest.mark.rule("X27")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("a: &x b\nc: d", "line 2: .*anchor"),
        ("a: b\nc: *x", "line 3: .*alias"),
        ("a: !!str b", "line 2: .*tag"),
        ("a: !own b", "line 2: .*tag"),
        ("a: b\na: c", "line 3: .*'a' stands twice"),
        ("x: {a: b, 'a': c}", "stands twice"),
        ("1: b", "a key must be a text"),
        ("true: b", "a key must be a text"),
        ("on: b", "differently"),
        ("? [a]\n: b", "a key must be a text"),
        ("- a", "must be a mapping"),
        ("a", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: b\n...\nc: d", "not YAML|two documents"),
        ("%YAML 1.1\n--- # \na: b", "`---` or `%` of its own"),
        ("a: |\n  b", "the last field"),
        ("a: [b", "line 2: the frontmatter is not YAML"),
        ("a: b\u2028c", "a line end that is none"),
        ("a: " + "[" * 20 + "]" * 20, "over 16 levels"),
        ("a: " + "b" * LONGEST, "over 65536 characters"),
    ],
)
def test_what_hosts_cannot_compare_is_refused(fields: str, why: str) -> None:
    with pytest.raises(Mistake, match=why):
        read(fields)


SAME = [
    "null", "~", "true", "FALSE", "0", "-7", "+7", "12", "1.5", "-0.25", "1.5e+3", "2.", "a b", "1.2.3", "v1", "a:b",
    "yesterday", "http://x.y", "2026-01", "1-2", "+", "0x", "ye s", "~a",
]  # fmt: skip


@pytest.mark.rule("X27")
@pytest.mark.parametrize("scalar", SAME)
def test_what_is_accepted_is_what_a_reader_of_yaml_1_1_reads(scalar: str) -> None:
    """The official suite reads with one of YAML 1.2, in the conformance tests."""
    assert read(f"x: {scalar}") == yaml.safe_load(f"x: {scalar}")
