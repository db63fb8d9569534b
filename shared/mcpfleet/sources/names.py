"""The forms of targets that are no App, and the names of what they start; cheap to import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

from mcpfleet.contracts.manifest import pool_named

FILE: Final = re.compile(r"(?P<file>.+\.(?:toml|json))(?::(?P<name>[^/:]+))?")
OPENAPI: Final = "openapi:"
PYTHON_FILE: Final = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[A-Za-z_][A-Za-z0-9_.]*))?")
_OURS: Final = "mcpfleet"
_SERVERS: Final = frozenset({"fastmcp", "mcp"})
"""The packages of which a server object may be."""
_LARGEST: Final = 1024 * 1024
"""Bytes of a Python file that is looked at."""
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


def is_server_file(target: str) -> bool:
    """Return whether a Python file has a server of FastMCP or an SDK, and no App: by its imports, without running it.

    A file that imports neither by itself counts as an App's.
    """
    found = PYTHON_FILE.fullmatch(target)
    if found is None:
        return False
    try:
        with Path(found["file"]).open("rb") as file:
            tree = ast.parse(file.read(_LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False  # whoever imports it says why
    packages = {name.partition(".")[0] for name in _imported(tree)}
    return _OURS not in packages and not _SERVERS.isdisjoint(packages)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def name_of(command: tuple[str, ...]) -> str:
    """Return the name of a source that is a command: the package or program that it runs."""
    for word in command:
        plain = PurePath(word).name
        if word.startswith("-") or _ASSIGNMENT.match(word) or plain in _RUNNERS or _PYTHON.fullmatch(plain):
            continue
        name = _VERSION.sub("", plain)
        return pool_named(name.removesuffix(".py").removesuffix(".js"))
    return pool_named(PurePath(command[0]).name)
