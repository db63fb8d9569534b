"""The capabilities that a client must declare before a handler may ask it (D16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASKS: Final = f"extensions.{TASKS_EXTENSION}"
"""The name of the Tasks extension among required capabilities."""


def missing(asks: Iterable[str], capabilities: dict[str, Any]) -> list[str]:
    """List the questions that a handler may ask and the capabilities do not cover, in the order of `asks`.

    An `elicitation` capability without modes means forms alone.
    """
    return [name for name in asks if not _covers(capabilities, name)]


def _covers(capabilities: dict[str, Any], name: str) -> bool:
    head, _, mode = name.partition(".")
    held = capabilities.get(head)
    if not isinstance(held, dict):
        return False
    if name == "elicitation.form":
        return "form" in held or "url" not in held
    return not mode or isinstance(held.get(mode), dict)
