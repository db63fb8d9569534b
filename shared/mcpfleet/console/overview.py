"""The fleet as the overview shows it: values for JSON, and work that is stuck."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from mcpfleet.console.history import History, Series, ToolKey, as_chart
from mcpfleet.console.nodes import Node
from mcpfleet.contracts.stats import ReportedError

MOST_ALIKE: Final = 20
"""Stuck things that are told of one service, or of one pool."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """One stuck thing."""

    node: Node | None
    """The process that it concerns; None for the fleet."""
    what: str


def stuck(nodes: Sequence[Node], now: float) -> list[Stuck]:
    """Return all stuck things, of the fleet and then of each process; the nodes of a pool stand side by side."""
    found = list(_of_fleet(nodes))
    for _, alike in groupby(nodes, lambda node: (node.sender.role, node.sender.pool)):
        found += islice((each for node in alike for each in stuck_of(node, now)), MOST_ALIKE)
    return found


def _of_fleet(nodes: Sequence[Node]) -> Iterator[Stuck]:
    tasks = [node for node in nodes if node.sender.role == "tasks"]
    waiting = max((node.number("tasks_ready") for node in tasks), default=0)
    if waiting and not any(node.rate("tasks_claimed") for node in tasks):
        yield Stuck(None, f"waiting tasks that no worker takes: {waiting:.0f}")
    if nodes and not any(node.sender.role == "worker" for node in nodes):
        yield Stuck(None, "no worker is heard")


def stuck_of(node: Node, now: float) -> Iterator[Stuck]:
    """Return the stuck things of a process."""
    silence = node.silence(now)
    if silence:
        yield Stuck(node, f"no report for {silence:.0f} s")
        return
    if not node.stats.stopping:
        for lack in node.stats.lacks:
            yield Stuck(node, f"not ready: {lack.name}: {lack.why}")
    queued, slots, refusals = node.number("queued"), node.number("slots"), node.number("refusals")
    if queued:
        yield Stuck(node, f"calls that wait for room in a pool: {queued:.0f}")
    if slots and node.number("slots_used") >= slots:
        yield Stuck(node, f"all its slots are in use: {slots:.0f}")
    if refusals:
        yield Stuck(node, f"subjects that NATS has refused it since its start: {refusals:.0f}")


MOST_TROUBLES: Final = 60
MOST_TROUBLES_ALIKE: Final = 10
"""For one service, or for one pool: a worker that is taken over must not hide the errors of others."""
ENDED: Final = "tasks_ended_"
MOST_STATES: Final = 12


def overview(
    nodes: Sequence[Node], history: History, now: float, *, jaeger: str, unshown: bool = False
) -> dict[str, Any]:
    """Return all values of the overview.

    Args:
        nodes: the processes.
        history: the last 15 minutes.
        now: monotonic seconds.
        jaeger: the address of Jaeger's page; empty for none.
        unshown: whether more processes were heard than are kept.
    """
    return {
        "totals": _totals(nodes, now),
        "tasks": _tasks([node for node in nodes if node.sender.role == "tasks"]),
        "charts": as_chart(history.fleet, history, now),
        "tools": [tool_row(key, series, nodes, history, now) for key, series in history.tools(now)],
        "tools_unshown": history.has_dropped,
        "nodes": [node_row(node, history, now) for node in nodes],
        "unshown": unshown,
        "stuck": [stuck_row(each) for each in stuck(nodes, now)],
        "troubles": trouble_rows(nodes, jaeger),
    }


def _totals(nodes: Sequence[Node], now: float) -> dict[str, float]:
    heard = [node for node in nodes if not node.silence(now)]
    return {
        "processes": len(heard),
        "requests": _rate(heard, "requests"),
        "failures": _rate(heard, "failures"),
        "running": _sum(heard, "running"),
        "queued": _sum(heard, "queued"),
        "streams": _sum(heard, "streams"),
        # Every edge hears the same hint of a catalog, so the fleet's number is that of the edge that hears most.
        "hints": max((node.rate("hints") for node in heard), default=0.0),
        "told": _rate(heard, "told"),
        "slots": _sum(heard, "slots"),
        "slots_used": _sum(heard, "slots_used"),
    }


def _tasks(nodes: Sequence[Node]) -> dict[str, float]:
    """Return tasks by state: the present ones, as each replica counts them all, and the past ones since its start."""
    found: dict[str, float] = {
        "ready": max((node.number("tasks_ready") for node in nodes), default=0),
        "held": max((node.number("tasks_held") for node in nodes), default=0),
        "made": _sum(nodes, "tasks_made"),
        "claimed": _sum(nodes, "tasks_claimed"),
        "lapsed": _sum(nodes, "tasks_lapsed"),
    }
    ended = sorted({name for node in nodes for name in node.stats.numbers if name.startswith(ENDED)})
    return found | {name.removeprefix(ENDED): _sum(nodes, name) for name in ended[:MOST_STATES]}


def tool_row(key: ToolKey, series: Series, nodes: Iterable[Node], history: History, now: float) -> dict[str, Any]:
    """Return a tool's figures of the last minute; its calls that wait are those that edges told last."""
    told = (each for node in nodes if node.sender.role == "edge" and not node.silence(now) for each in node.stats.calls)
    waiting = sum(each.waiting for each in told if (each.method, each.tool) == key)
    return {"method": key.method, "tool": key.tool, "waiting": waiting, **series.recent(now, history.began)}


def node_row(node: Node, history: History, now: float) -> dict[str, Any]:
    """Return a process's figures: rates since its message before, quantiles of the last minute."""
    is_worker = node.sender.role == "worker"
    recent = history.process(node.sender).recent(now, history.began)
    return {
        "who": who(node),
        "role": node.sender.role,
        "pool": node.sender.pool,
        "process": node.sender.process,
        "state": _state(node, now),
        "silence": round(node.silence(now)),
        "version": node.stats.version,
        "rate": node.rate("handled" if is_worker else "requests"),
        "failures": node.rate("handler_failures" if is_worker else "failures"),
        "p50": recent["p50"],
        "p95": recent["p95"],
        "running": node.number("slots_used" if is_worker else "running"),
        "slots": node.number("slots"),
        "queued": node.number("queued"),
        "streams": node.number("streams"),
        "cpu": node.rate("cpu"),
        "memory": node.number("memory"),
    }


def _state(node: Node, now: float) -> str:
    if node.silence(now):
        return "silent"
    if node.stats.stopping:
        return "stopping"
    return "ready" if node.stats.ready else "not ready"


def stuck_row(each: Stuck) -> dict[str, str]:
    """Return a stuck thing as the page shows it."""
    return {"who": who(each.node) if each.node is not None else "the fleet", "what": each.what}


def trouble_rows(nodes: Iterable[Node], jaeger: str, tool: str = "") -> list[dict[str, Any]]:
    """Return the last errors, the newest first; a bounded number of each service and each pool, whatever their
    clocks say.

    Args:
        nodes: the processes.
        jaeger: the address of Jaeger's page; empty for none.
        tool: only errors of this tool; empty for all.
    """
    found: list[tuple[ReportedError, Node]] = []
    for _, alike in groupby(nodes, lambda node: (node.sender.role, node.sender.pool)):
        own = [
            (error, node)
            for node in alike
            for error in node.stats.troubles
            if not tool or f"tool={tool}" in error.of.split(" ")
        ]
        found += sorted(own, key=_moment)[-MOST_TROUBLES_ALIKE:]
    found.sort(key=_moment, reverse=True)
    return [
        {
            "at": error.at,
            "level": error.level,
            "who": who(node),
            "event": error.event,
            "of": error.of,
            "trace": error.trace,
            "link": _link(error, jaeger),
        }
        for error, node in found[:MOST_TROUBLES]
    ]


def _moment(each: tuple[ReportedError, Node]) -> float:
    return each[0].at


def _link(error: ReportedError, jaeger: str) -> str:
    """Return the link to a recorded trace; the message's check held the id to hexadecimal digits."""
    return f"{jaeger}/trace/{error.trace}" if jaeger and error.trace and error.sampled else ""


def who(node: Node) -> str:
    """Name a process for people."""
    name = f"worker of {node.sender.pool}" if node.sender.pool else node.sender.role
    return f"{name} {node.sender.process[:4]}"


def _sum(nodes: Iterable[Node], number: str) -> float:
    return sum(node.number(number) for node in nodes)


def _rate(nodes: Iterable[Node], number: str) -> float:
    return sum(node.rate(number) for node in nodes)
