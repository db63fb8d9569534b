"""The tools of an endpoint whose calls repeat arguments in headers `Mcp-Param-…`, as its lists have told (M6, M7)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from mcpfleet.cli.stdio.messages import RawMessage
from mcpfleet.wire.parameter_headers import Paths, headers_at, paths_of

_MOST_TOOLS: Final = 10_000
"""Tools whose headers are remembered."""


class ToolHeaders:
    """Which arguments of which tool a header repeats, as the endpoint's lists of tools have told."""

    def __init__(self) -> None:
        self._tools: OrderedDict[str, Paths] = OrderedDict()

    def learn(self, answer: RawMessage) -> list[str]:
        """Read a list of tools; returns a sentence for each tool that a client over HTTP must leave out."""
        result = answer.value.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        refused = []
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            try:
                paths = dict(paths_of(tool.get("inputSchema")))
            except ValueError as error:
                refused.append(f"the tool {name!r} is left out: {error}")
                continue
            self._tools.pop(name, None)
            if paths:
                self._tools[name] = paths
        while len(self._tools) > _MOST_TOOLS:
            self._tools.popitem(last=False)
        return refused

    def of_call(self, call: RawMessage) -> dict[str, str]:
        """Return the headers of a call."""
        name, arguments = call.params.get("name"), call.params.get("arguments")
        paths = self._tools.get(name, {}) if isinstance(name, str) else {}
        return headers_at(paths, arguments)


def without_bad_tools(answer: RawMessage) -> dict[str, Any]:
    """Return a list of tools without those whose annotations are against the rules."""
    result = answer.value["result"]
    return {**answer.value, "result": {**result, "tools": [tool for tool in result["tools"] if _is_good(tool)]}}


def _is_good(tool: Any) -> bool:
    try:
        list(paths_of(tool.get("inputSchema") if isinstance(tool, dict) else None))
    except ValueError:
        return False
    return True
