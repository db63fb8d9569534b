"""Serves a server object of a Python file or module over stdio: `PYTHON object_server.py TARGET`.

The file is run by itself, perhaps in an environment that has neither mcpfleet nor our release of the SDK. So it imports
nothing but the standard library, and takes the object as each SDK has it: FastMCP 2 to 4, `FastMCP` and `Server` of the
SDK 1, `MCPServer` and `Server` of the SDK 2. The object's prints go to standard error: standard output is the
protocol's.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

KINDS: Final = ("FastMCP", "MCPServer", "Server")
"""The classes of server objects, the first that a module has counts."""
_PACKAGES: Final = ("fastmcp", "mcp")


class NoObject(Exception):
    """Raised when a target does not lead to one server object; the text says what was found, and what to write."""


class PrintedAside(io.TextIOBase):
    """Standard output in which `print` writes to standard error, and `buffer` is the protocol's."""

    def __init__(self, buffer: io.BufferedWriter) -> None:
        self.buffer = buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has an attribute
        """The encoding of what is printed."""
        return "utf-8"

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write to standard error."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush standard error."""
        sys.stderr.flush()


def find(target: str) -> Any:
    """Return the server object of a target: `path/to/server.py`, `path/to/server.py:name` or `module:name`.

    Raises:
        NoObject: it has none, or several and no name.
    """
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _loaded(place)
    if name:
        found = getattr(module, name, None)
        if found is None:
            raise NoObject(
                f"{target}: {place} has no {name!r}; it has {_named(_servers(module)) or 'no server object'}"
            )
        if _kind(found) is None:
            raise NoObject(f"{target}: {name!r} is a {type(found).__name__}, and no {', '.join(KINDS)}")
        return found
    servers = _servers(module)
    for kind in KINDS:
        those = {name: found for name, found in servers.items() if _kind(found) == kind}
        if len({id(found) for found in those.values()}) > 1:
            raise NoObject(f"{target}: it has several server objects: write {place}:NAME with one of {_named(those)}")
        if those:
            return next(iter(those.values()))
    raise NoObject(f"{target}: it has no server object: no {', '.join(KINDS)} at its top level")


def _loaded(place: str) -> ModuleType:
    """Import a module by its name or its file, as `python FILE` would."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise NoObject(f"{place}: there is no such file")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _servers(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if _kind(value) is not None}


def _kind(value: Any) -> str | None:
    """Return the class of an SDK that an object belongs to."""
    for each in type(value).__mro__:
        if each.__name__ in KINDS and each.__module__.partition(".")[0] in _PACKAGES:
            return each.__name__
    return None


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


async def serve(server: Any) -> None:
    """Serve an object over standard input and output to the end of the input."""
    run = getattr(server, "run_stdio_async", None)
    if run is not None:
        takes_banner = "show_banner" in inspect.signature(run).parameters
        await run(**({"show_banner": False} if takes_banner else {}))
        return
    stdio = importlib.import_module("mcp.server.stdio")
    async with stdio.stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def main(target: str) -> int:
    """Serve a target; returns the exit code."""
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries below Python write
    sys.stdout = PrintedAside(protocol)  # it has what `print` and the SDKs use
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
    try:
        server = find(target)
    except NoObject as error:
        sys.stderr.write(f"{error}\n")
        return 2
    asyncio.run(serve(server))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
