"""What a handler sees of the call that it answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import anyio.from_thread
import anyio.lowlevel

from mcpfleet.app.cancellation import Cancelled
from mcpfleet.app.client import Client
from mcpfleet.app.progress import Progress, Verdict, judge
from mcpfleet.contracts.principal import Principal

Report = Callable[[Progress], None]
"""Takes a progress report that is due to be sent; called on the handlers' event loop, must not block."""


class Context:
    """One call, as its handler sees it: a parameter annotated with `Context` receives it.

    A test builds one itself, with just what the handler looks at: `Context()`, or
    `Context(report=reports.append, principal=Principal(subject="ann"))`.

    Args:
        principal: who calls; anonymous by default.
        client: what the calling client says of itself.
        deadline: when the call ends, by `time.monotonic()`, in seconds; never, by default.
        cancelled: how the handler hears that it is cancelled; by default it never is.
        report: takes the progress; None where nobody asked for it (P1).
    """

    __slots__ = ("_cancelled", "_client", "_deadline", "_ended", "_last", "_principal", "_report")

    def __init__(
        self,
        *,
        principal: Principal | None = None,
        client: Client | None = None,
        deadline: float = math.inf,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
    ) -> None:
        self._principal = principal
        self._client = client
        self._deadline = deadline
        self._cancelled = cancelled
        self._report = report
        self._last: float | None = None
        self._ended = False

    @property
    def principal(self) -> Principal:
        """Who calls: subject, client, tenant and scopes; never its token."""
        if self._principal is None:
            self._principal = Principal()
        return self._principal

    @property
    def client(self) -> Client:
        """What the calling client says of itself: `info` and `capabilities`."""
        if self._client is None:
            self._client = Client()
        return self._client

    @property
    def deadline(self) -> float:
        """When the call ends whatever it reports, by `time.monotonic()`, in seconds (M59)."""
        return self._deadline

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def cancelled(self) -> Cancelled:
        """Whether the result is no longer wanted: `if ctx.cancelled:`, `await ctx.cancelled.wait()`, callbacks."""
        if self._cancelled is None:
            self._cancelled = Cancelled()
        return self._cancelled

    @property
    def sync(self) -> SyncContext:
        """The same for a handler that is a plain function, and so runs in a thread."""
        return SyncContext(self)

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is.

        A greater value than before is sent, an equal one is dropped; the first is always sent. Does nothing where the
        client did not ask, and once the call is cancelled or over (P3). Progress moves no deadline.

        Args:
            value: how much is done, in any unit.
            total: what `value` will have reached at the end, where that is known.
            message: a line for people.

        Raises:
            ProgressError: the value or the total is not finite, or the value is less than before.
        """
        if not self._ended and not self._cancelled:
            report = Progress(value, total, message)
            if judge(self._last, report) is Verdict.SEND:
                self._last = value
                if self._report is not None:
                    self._report(report)
        # A handler that computes without a pause lets the others run here, and hears its cancel.
        await anyio.lowlevel.checkpoint()

    def end(self) -> None:
        """Say that the call is over: what still reports, reports nothing. For whoever runs the handler."""
        self._ended = True


class SyncContext:
    """What of a Context must be awaited, for handlers that run in a thread: each call blocks until it is done."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is, as `Context.progress` does.

        Raises:
            ProgressError: the value or the total is not finite, or the value is less than before.
            RuntimeError: the thread is not one that runs a handler.
        """
        anyio.from_thread.run(self._context.progress, value, total, message)
