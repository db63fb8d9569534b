"""Runs handlers, on a loop of their own: one task a call, its deadline, its cancel, and the frame that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp_types import INTERNAL_ERROR
from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import App, Context, InvalidArguments, Outcome, OutputError, ProtocolError, Tool
from mcpfleet.app.cancellation import CancelSignal
from mcpfleet.app.client import Client
from mcpfleet.app.progress import Progress
from mcpfleet.bus.actor import consumer_span
from mcpfleet.contracts.call import AUTHORED_ERROR, CallBody, FrameKind
from mcpfleet.telemetry import names
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.spans import Span, Tracer
from mcpfleet.wire.reply import result_body
from mcpfleet.worker.frames import Ended, Report
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.table import Held, Key

_TEMPLATE: Final = "pool.{pool}.{definition}.call"
_CALLBACK_THREADS: Final = 4


class Runner:
    """Runs an application's tools. Its methods are for the handlers' loop, and `tell` leads out of it."""

    def __init__(
        self,
        app: App,
        settings: WorkerSettings,
        *,
        tell: Callable[[Report | Ended], None],
        tracer: Tracer,
        instruments: WorkerInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the application.

        Args:
            app: whose tools are run.
            settings: threads and limits.
            tell: hears a call's progress, and once its end, when its handler has really returned.
            tracer: the worker's.
            instruments: where durations are counted.
            log: where the errors go whose text no client may read.
        """
        self._tools = {tool.definition.digest: tool for tool in app.tools.values()}
        self._settings = settings
        self._tell = tell
        self._tracer = tracer
        self._instruments = instruments
        self._log = log
        self._tasks: TaskGroup | None = None
        self._cancels: dict[Key, tuple[CancelSignal, anyio.CancelScope]] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the handlers' tasks until cancelled."""
        self._threads = anyio.CapacityLimiter(self._settings.threads)
        with ThreadPoolExecutor(_CALLBACK_THREADS, "cancel-callback") as self._callbacks:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()

    def obey(self, order: Held | Key) -> None:
        """Run a call in a task of its own, or cancel the one of this name, which may have ended meanwhile."""
        if isinstance(order, Held):
            assert self._tasks is not None
            self._tasks.start_soon(self._run, order)
        elif (cancel := self._cancels.get(order)) is not None:
            signal, scope = cancel
            signal.cancel()
            scope.cancel()

    async def _run(self, held: Held) -> None:
        started = time.monotonic()
        ended = Ended(held.key, FrameKind.RESULT, b"")
        tool = self._tools[held.definition]
        name = tool.definition.name
        signal = CancelSignal(self._callbacks)
        error_type = names.CANCELLED
        try:
            with consumer_span(self._tracer, _TEMPLATE, held.subject, held.trace) as span, span.activate():
                span.set(names.GEN_AI_TOOL_NAME, name)
                span.set(names.MESSAGING_CONVERSATION_ID, held.key.call)
                with anyio.CancelScope() as scope:
                    self._cancels[held.key] = (signal, scope)
                    ended, error_type = await self._answer(tool, held, signal, span)
                if scope.cancelled_caught:
                    span.fail(error_type)
        finally:
            del self._cancels[held.key]
            with anyio.CancelScope(shield=True):
                await signal.finished()
            self._tell(ended)
            self._instruments.handler_duration.record(time.monotonic() - started, name, error_type)

    async def _answer(self, tool: Tool, held: Held, signal: CancelSignal, span: Span) -> tuple[Ended, str]:
        """Call the handler within its time; whatever it does becomes a frame."""
        limit = min(held.deadline, time.monotonic() + tool.definition.timeout)
        error_type = ""
        try:
            with anyio.fail_after(max(0.0, limit - time.monotonic())):
                body, is_error = await self._call(tool, held, signal, limit)
        except ProtocolError as error:
            span.fail(str(error.code))
            return self._error(held, error.code, error.message, error.data, AUTHORED_ERROR), str(error.code)
        except OutputError as error:
            self._log.error("broken output contract", tool=tool.definition.name, error=str(error))
            span.fail("output_contract")
            message = f"The tool broke its own output schema (reference {held.trace.trace_id})"
            return self._error(held, INTERNAL_ERROR, message, None, None), "output_contract"
        except TimeoutError:
            signal.cancel()
            error_type = "timeout"
            body, is_error = _failure(f"The tool did not finish within {tool.definition.timeout:g} s.")
        except InvalidArguments as error:
            body, is_error = _failure(str(error))
        except Exception as error:
            self._log.exception("handler failed", tool=tool.definition.name)
            error_type = type(error).__qualname__
            body, is_error = _failure(f"The tool failed (reference {held.trace.trace_id}).")
        if is_error:
            error_type = error_type or names.TOOL_ERROR
            span.fail(error_type)
        return self._result(held, tool, body), error_type

    async def _call(self, tool: Tool, held: Held, signal: CancelSignal, limit: float) -> tuple[bytes, bool]:
        call = CallBody.read(held.body)
        context = Context(
            principal=call.principal,
            client=Client(call.client, call.capabilities),
            deadline=limit,
            cancelled=signal,
            report=self._reporter(held.key) if held.wants_progress else None,
        )
        outcome = await tool.call(call.arguments, context, threads=self._threads)
        try:
            return _result_body(outcome), outcome.is_error
        except ValueError as error:  # a part that the author built does not serialise
            raise OutputError(f"the result is not JSON: {type(error).__name__}") from error

    def _reporter(self, key: Key) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            body: dict[str, Any] = {"progress": progress.value}
            if progress.total is not None:
                body["total"] = progress.total
            if progress.message is not None:
                body["message"] = progress.message
            self._tell(Report(key, to_json(body)))

        return report

    def _result(self, held: Held, tool: Tool, body: bytes) -> Ended:
        limit = self._settings.result_limit
        if len(body) > limit:
            self._log.error("result too large", tool=tool.definition.name, bytes=len(body), limit=limit)
            text = f"The result has {len(body)} bytes, and the limit is {limit} (MCPFLEET_RESULT_LIMIT)."
            body, _ = _failure(text)
        return Ended(held.key, FrameKind.RESULT, body)

    def _error(self, held: Held, code: int, message: str, data: Any, line: str | None) -> Ended:
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return Ended(held.key, FrameKind.ERROR, to_json(error), line)


def _failure(text: str) -> tuple[bytes, bool]:
    """A tool result that says to the model what went wrong (D3)."""
    return _result_body(Outcome.failed(text)), True


def _result_body(outcome: Outcome) -> bytes:
    return result_body({"resultType": "complete", **outcome.fields()}, outcome.meta)
