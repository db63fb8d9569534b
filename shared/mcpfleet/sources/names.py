"""The forms of targets that are no App, and the names of what they start; cheap to import."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from mcpfleet.contracts.manifest import pool_named

FILE: Final = re.compile(r"(?P<file>.+\.(?:toml|json))(?::(?P<name>[^/:]+))?")
OPENAPI: Final = "openapi:"
_RUNNERS: Final = frozenset({
    "npx", "bunx", "uvx", "uv", "pipx", "pnpm", "dlx", "node", "bun", "deno", "docker", "podman", "run", "tool", "exec",
    "env", "sh", "bash",
})  # fmt: skip
"""Words of a command that start what comes after them."""
_PYTHON: Final = re.compile(r"python[0-9.]*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=(?!=)")
_VERSION: Final = re.compile(r"(?<=.)[@=:][^/]*$")


def is_source(target: str) -> bool:
    """Return whether a target names sources by its form, and no App."""
    return FILE.fullmatch(target) is not None or target.startswith((OPENAPI, "http://", "https://"))


def name_of(command: tuple[str, ...]) -> str:
    """Return the name of a source that is a command: the package or program that it runs."""
    for word in command:
        plain = PurePath(word).name
        if word.startswith("-") or _ASSIGNMENT.match(word) or plain in _RUNNERS or _PYTHON.fullmatch(plain):
            continue
        name = _VERSION.sub("", plain)
        return pool_named(name.removesuffix(".py").removesuffix(".js"))
    return pool_named(PurePath(command[0]).name)
