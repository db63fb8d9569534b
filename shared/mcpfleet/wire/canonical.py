"""JSON in one form of its own: values that are equal have equal bytes in every process, so their digests are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json


def canonical(value: Any) -> bytes:
    """Serialise with keys sorted at every depth: the order in which somebody wrote them says nothing."""
    return to_json(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
