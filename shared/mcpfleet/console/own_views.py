"""The views of one process and of one tool: what their addresses ask for, and the values that they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from mcpfleet.console.history import History, ToolKey, as_chart
from mcpfleet.console.nodes import Node
from mcpfleet.console.overview import node_row, stuck_of, stuck_row, tool_row, trouble_rows
from mcpfleet.contracts.stats import LONGEST_NAME, LONGEST_TOOL, Sender

View = Sender | ToolKey
"""One process, or one tool or method."""
_LONGEST_QUERY: Final = 4_096
"""Bytes of a query that are read: a name of 128 characters, each escaped, and a pool."""


def view_of(query: bytes) -> View | None:
    """Read which view a query asks for; None for the overview, and for a query of another form.

    A process is `role=edge&process=ID` or `pool=POOL&process=ID`; a tool is `tool=NAME`, another method `method=NAME`.
    """
    try:
        found = {name: values[0] for name, values in parse_qs(query[:_LONGEST_QUERY].decode("ascii")).items()}
    except ValueError:
        return None
    if "process" in found:
        pool, process = found.get("pool", ""), found["process"][:LONGEST_NAME]
        return Sender("worker" if pool else found.get("role", ""), pool[:LONGEST_NAME], process)
    if "tool" in found:
        return ToolKey("tools/call", found["tool"][:LONGEST_TOOL])
    return ToolKey(found["method"][:LONGEST_NAME], "") if "method" in found else None


def own_view(view: View, nodes: Sequence[Node], history: History, now: float, *, jaeger: str) -> dict[str, Any]:
    """Return all values of a view; its `found` is None for what was not heard.

    Args:
        view: the one.
        nodes: the processes.
        history: the last 15 minutes.
        now: monotonic seconds.
        jaeger: the address of Jaeger's page; empty for none.
    """
    reports = len(nodes)
    if isinstance(view, Sender):
        own = [node for node in nodes if node.sender == view]
        found = _process(own[0], history, now, jaeger) if own else None
    else:
        found = _tool(view, nodes, history, now, jaeger)
    return {"reports": reports, "found": found}


def _process(node: Node, history: History, now: float, jaeger: str) -> dict[str, Any]:
    series = history.process(node.sender)
    recent = series.recent(now, history.began)
    return {
        **node_row(node, history, now),
        "rate": recent["rate"],
        "failures": recent["failures"],
        "charts": as_chart(series, history, now),
        "stuck": [stuck_row(each) for each in stuck_of(node, now)],
        "troubles": trouble_rows([node], jaeger),
    }


def _tool(key: ToolKey, nodes: Sequence[Node], history: History, now: float, jaeger: str) -> dict[str, Any] | None:
    series = history.tool(key)
    if series is None:
        return None
    return {
        **tool_row(key, series, nodes, history, now),
        "charts": as_chart(series, history, now, history.fleet),
        "stuck": [],
        "troubles": trouble_rows(nodes, jaeger, key.tool) if key.tool else [],
    }
