"""Run by FastMCP's own Python: serves a file, or does what a test asks of several files' servers, in memory.

`drive.py serve FILE PORT` serves a file over HTTP. `drive.py operate` reads from standard input a JSON object, which
has for each file the client's mode, its operations and its answer to a question, and prints what came of them as JSON.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from typing import Any

from fastmcp import Client, FastMCP  # type: ignore[import-not-found]  # it lives in an environment of its own


def load(path: str) -> FastMCP:
    """The server `mcp` of a file."""
    spec = importlib.util.spec_from_file_location("served", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["served"] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module.mcp


async def operate(path: str, mode: str, operations: list[list[Any]], answer: dict[str, Any] | None) -> list[Any]:
    """Do operations, and return what a client sees of each."""
    reports: list[Any] = []

    async def reported(progress: float, total: float | None, message: str | None) -> None:
        reports.append([progress, total, message])

    async def answered(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return response_type(**answer) if answer is not None else {}

    async with Client(load(path), mode=mode, elicitation_handler=answered, progress_handler=reported) as client:
        return [await one(client, reports, *operation) for operation in operations]


async def one(client: Client, reports: list[Any], kind: str, name: str, arguments: dict[str, Any]) -> Any:
    """Do one operation."""
    if kind == "read":
        return [content.text for content in await client.read_resource(name)]
    if kind == "prompt":
        return [message.content.text for message in (await client.get_prompt(name, arguments)).messages]
    del reports[:]
    result = await client.call_tool(name, arguments, raise_on_error=False)
    return {"text": [block.text for block in result.content], "failed": result.is_error, "reports": list(reports)}


def main() -> None:
    """Do what the command line says."""
    if sys.argv[1] == "serve":
        load(sys.argv[2]).run(transport="http", port=int(sys.argv[3]), show_banner=False, log_level="ERROR")
        return
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps({path: asyncio.run(operate(path, *told)) for path, told in asked.items()}))


if __name__ == "__main__":
    main()
