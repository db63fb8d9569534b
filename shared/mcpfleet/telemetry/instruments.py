"""The instruments of each service: one class a service, so that names and labels stand in one place."""

from __future__ import annotations

from typing import Final

from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.names import ERROR_TYPE, GEN_AI_TOOL_NAME, MCP_METHOD_NAME, MCP_PROTOCOL_VERSION

OPERATION_BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds, as the conventions for MCP give them."""
FINE_BOUNDS: Final = (
    *(float(f"{step}e{decade}") for decade in range(-4, 1) for step in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)),
    *(10, 12.5, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, 160, 200, 250, 300),
)
"""Seconds, from 0.1 ms on, each about a quarter above the one before. Processes of other releases count in them too, so
they never change."""
WAIT_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds in a queue; its bound is 5 s by default."""


STREAM_BOUNDS: Final = (1, 10, 60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400)
"""Seconds that a stream is open; a day is the longest by default."""


class ProcessInstruments:
    """The instruments of every process."""

    def __init__(self, metrics: Metrics) -> None:
        self.observer_drops = metrics.counter(
            "mcpfleet.observers.dropped", "Events that an observer did not hear.", labels=("observer",)
        )
        """The observer's name."""


class EdgeInstruments:
    """The instruments of an edge."""

    def __init__(self, metrics: Metrics) -> None:
        self.operation_duration = metrics.histogram(
            "mcp.server.operation.duration",
            "From an MCP request's arrival to the end of its answer.",
            OPERATION_BOUNDS,
            unit="s",
            labels=(MCP_METHOD_NAME, GEN_AI_TOOL_NAME, MCP_PROTOCOL_VERSION, ERROR_TYPE),
            finer=FINE_BOUNDS,
        )
        """The tool is one of the caller's view, else empty; the error type is empty without an error."""
        self.rejections = metrics.counter(
            "mcpfleet.edge.rejections", "Requests that got an error of the protocol.", labels=("status", "code")
        )
        self.lenient = metrics.counter(
            "mcpfleet.edge.lenient_versions", "Requests served against their version header.", labels=("endpoint",)
        )
        self.audit_lost = metrics.counter("mcpfleet.edge.audit.lost", "Audit lines that could not be written.")
        self.calls_running = metrics.gauge("mcpfleet.edge.calls.running", "Placed calls that have no end yet.")
        self.queued = metrics.gauge("mcpfleet.edge.queued", "Calls that wait for room in a pool.")
        self.queue_tools = metrics.gauge(
            "mcpfleet.edge.queue.tools", "Calls of a tool that wait for room in a pool.", labels=(GEN_AI_TOOL_NAME,)
        )
        """The tool is empty for what is no call of a tool."""
        self.queue_wait = metrics.histogram(
            "mcpfleet.edge.queue.wait", "How long calls waited for room.", WAIT_BOUNDS, unit="s", labels=("pool",)
        )


class ConnectionInstruments:
    """The instruments for clients' connections to an edge."""

    def __init__(self, metrics: Metrics) -> None:
        self.open = metrics.gauge("mcpfleet.edge.connections.open", "Connections of clients.")
        self.waits = metrics.counter(
            "mcpfleet.edge.connections.waits", "Times that clients waited to be accepted, since there was no room."
        )


class FileInstruments:
    """The instruments of an edge for files by digest."""

    def __init__(self, metrics: Metrics) -> None:
        self.fetches = metrics.counter(
            "mcpfleet.edge.files.fetches", "Files that were fetched from the catalog, by outcome.", labels=("outcome",)
        )
        """`fetched` or `failed`."""


class AdmissionInstruments:
    """The instruments of an edge for admission."""

    def __init__(self, metrics: Metrics) -> None:
        self.admissions = metrics.counter(
            "mcpfleet.edge.admissions", "Callers that a verdict was needed for.", labels=("verdict",)
        )
        """`kept` if the edge had a verdict, `asked` if authorization was asked, or was being asked already."""


class AuthorizationInstruments:
    """The instruments of authorization; no label tells a credential or its owner."""

    def __init__(self, metrics: Metrics) -> None:
        self.questions = metrics.counter(
            "mcpfleet.authorization.questions",
            "Credentials that edges asked about, by the verdict.",
            labels=("outcome",),
        )
        """`admitted`, `refused`, or `unknown` if nobody could tell."""
        self.refused = metrics.counter(
            "mcpfleet.authorization.refused", "Credentials that were refused, by why.", labels=("reason",)
        )
        self.keys_age = metrics.gauge(
            "mcpfleet.authorization.keys.age",
            "Since the issuer's keys were fetched, where tokens are signed.",
            unit="s",
        )


class StreamInstruments:
    """The instruments of an edge for listen streams."""

    def __init__(self, metrics: Metrics) -> None:
        self.open = metrics.gauge("mcpfleet.edge.streams.open", "Listen streams, open or about to be.")
        self.ended = metrics.counter(
            "mcpfleet.edge.streams.ended", "Listen streams that ended, by why they did.", labels=("reason",)
        )
        self.duration = metrics.histogram(
            "mcpfleet.edge.streams.duration",
            "How long streams of changes were open, by kind and by why they ended.",
            STREAM_BOUNDS,
            unit="s",
            labels=("kind", "reason"),
        )
        """`listen`, or `session` for the GET stream of a client of 2025."""
        self.renewals = metrics.histogram(
            "mcpfleet.edge.streams.renewals",
            "How long renewals of streams' leases took, by their outcome.",
            WAIT_BOUNDS,
            unit="s",
            labels=("outcome",),
        )
        """`renewed`, `refused`, `unanswered` or `failed`."""
        self.fences = metrics.counter(
            "mcpfleet.edge.streams.fences", "Streams that were fenced, since their rights may have ended."
        )
        self.cuts = metrics.counter(
            "mcpfleet.edge.streams.cuts", "Streams that were cut in the midst of a change whose right had ended."
        )
        self.grants = metrics.gauge("mcpfleet.edge.grants.open", "URIs whose changes callers may be sent, by caller.")
        self.grants_ended = metrics.counter(
            "mcpfleet.edge.grants.ended", "Such grants that ended, by why they did.", labels=("reason",)
        )
        """`refused`, or `unwatched` where no stream of the caller watches the URI any more."""
        self.refused = metrics.counter(
            "mcpfleet.edge.streams.refused", "Listen streams that were not opened, by why.", labels=("reason",)
        )
        self.told = metrics.counter("mcpfleet.edge.streams.told", "Changes that were written to listen streams.")
        self.read_checks = metrics.histogram(
            "mcpfleet.edge.read.checks",
            "How long resources took to say whether listeners may read them, by what they said.",
            WAIT_BOUNDS,
            unit="s",
            labels=("outcome",),
        )
        """`permitted`, `refused` or `undecided`."""
        self.read_checks_waiting = metrics.gauge(
            "mcpfleet.edge.read.checks.waiting", "Readings for listeners that wait for their turn."
        )


class WorkerInstruments:
    """The instruments of a worker."""

    def __init__(self, metrics: Metrics) -> None:
        self.slots_used = metrics.gauge("mcpfleet.worker.slots.used", "Calls that hold a slot.")
        self.slots = metrics.gauge("mcpfleet.worker.slots", "Calls that may run at once.")
        self.handler_duration = metrics.histogram(
            "mcpfleet.worker.handler.duration",
            "How long an application's handler ran.",
            OPERATION_BOUNDS,
            unit="s",
            labels=(GEN_AI_TOOL_NAME, ERROR_TYPE),
            finer=FINE_BOUNDS,
        )
        self.busy = metrics.counter("mcpfleet.worker.busy", "Calls that were answered with busy.")
        self.logs_dropped = metrics.counter(
            "mcpfleet.worker.logs.dropped", "Messages for clients' logs of an App without logs."
        )


class BusInstruments:
    """The instruments for a process's connection to NATS."""

    def __init__(self, metrics: Metrics) -> None:
        self.link_up = metrics.gauge("mcpfleet.bus.link.up", "1 while the link to NATS is proven, else 0.")
        self.links = metrics.counter("mcpfleet.bus.links", "Links that were made.")
        self.refusals = metrics.counter("mcpfleet.bus.refusals", "Subjects that NATS did not permit to this user.")
        self.unanswered = metrics.counter("mcpfleet.bus.unanswered", "Requests whose time ended without an answer.")
        self.undelivered = metrics.counter("mcpfleet.bus.undelivered", "Messages that their handler could not take.")


class CatalogInstruments:
    """The instruments of the catalog."""

    def __init__(self, metrics: Metrics) -> None:
        self.snapshot = metrics.gauge(
            "mcpfleet.catalog.snapshot", "The newest snapshot's number.", labels=("endpoint",)
        )
        self.workers = metrics.gauge("mcpfleet.catalog.workers", "Workers that announce themselves.", labels=("pool",))


class SubscriptionsInstruments:
    """The instruments of subscriptions."""

    def __init__(self, metrics: Metrics) -> None:
        self.sessions = metrics.gauge("mcpfleet.subscriptions.sessions", "Sessions of clients of 2025, in the store.")
        self.begun = metrics.counter("mcpfleet.subscriptions.sessions.begun", "Sessions that began.")
        self.ended = metrics.counter(
            "mcpfleet.subscriptions.sessions.ended", "Sessions that ended, by why they did.", labels=("reason",)
        )
        """`client`, `surplus`, `idle` or `retired`."""


class TasksInstruments:
    """The instruments of the tasks service; no label tells a task, an owner or a text (K20)."""

    def __init__(self, metrics: Metrics) -> None:
        self.created = metrics.counter("mcpfleet.tasks.created", "Tasks that were made.", labels=("kind",))
        """`created` by an edge, or `deferred` by a running call."""
        self.claimed = metrics.counter("mcpfleet.tasks.claimed", "Tasks that workers took.")
        self.ended = metrics.counter(
            "mcpfleet.tasks.ended", "Tasks that ended, by how, and the class of failure.", labels=("status", "failure")
        )
        self.lapsed = metrics.counter("mcpfleet.tasks.lapsed", "Leases whose holders were not heard.")
        self.refused = metrics.counter("mcpfleet.tasks.refused", "Writes for tasks that their writers hold no more.")
        self.reserved = metrics.counter(
            "mcpfleet.tasks.reserved", "Questions for idempotency keys, by what they were told.", labels=("outcome",)
        )
        self.tasks = metrics.gauge("mcpfleet.tasks.tasks", "Tasks by state.", labels=("state",))
        """`ready` for a worker, or `held` by one."""
