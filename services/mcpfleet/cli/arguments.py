"""A tool's arguments as people write them in a command: `name=value`."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def read_arguments(pairs: list[str]) -> dict[str, Any]:
    """Read `name=value` pairs; a value that is JSON is taken as such, any other as text.

    Raises:
        ValueError: a pair has no `=`.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{pair!r} is not name=value")
        try:
            arguments[name] = json.loads(text, parse_constant=_refuse)
        except ValueError:
            arguments[name] = text
    return arguments


def _refuse(constant: str) -> NoReturn:
    """Python reads NaN and Infinity, which JSON does not have."""
    raise ValueError(constant)
