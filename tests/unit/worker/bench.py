"""An application's tools on a runner in the test's own loop, and what the runner says of each call."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from structlog.testing import LogCapture

from mcpfleet.app import App
from mcpfleet.contracts.call import CallBody, FrameKind, call_subject
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.runner import HandlerTable, Runner, RunTelemetry
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.work import CallKey, CallWork, Ended, Frame, Logged, Report
from tests.kit.logs import captured
from tests.kit.observing import observers

_NOTHING: Mapping[str, Any] = {}
_numbers = itertools.count(1)


def app_of(*handlers: Any, **options: Any) -> App:
    """An application of these tools, all declared alike."""
    app = App("test", version="1")
    for handler in handlers:
        app.tool(**options)(handler)
    return app


async def add(left: int, right: int) -> int:
    """A tool that just works."""
    return left + right


def text_of(result: Any) -> str:
    """The one text of a result."""
    assert len(result["content"]) == 1
    text: str = result["content"][0]["text"]
    return text


def held_call(
    app: App,
    name: str,
    arguments: Mapping[str, Any] = _NOTHING,
    *,
    lasts: float = 5.0,
    wants_progress: bool = False,
    body: bytes | None = None,
    **asked: Any,
) -> CallWork:
    """A call as the worker's table hands it to the handlers' loop; `asked` are further parts of its body."""
    [digest] = [each.definition.digest for each in app.handlers if each.definition.name == name]
    return CallWork(
        key=CallKey("e1", str(next(_numbers))),
        definition=digest,
        subject=call_subject("test", digest),
        body=CallBody(dict(arguments), **asked).write() if body is None else body,
        deadline=time.monotonic() + lasts,
        trace=TraceContext.fresh(sampled=False),
        wants_progress=wants_progress,
    )


@dataclass
class Bench:
    """A runner, and all its frames."""

    app: App
    settings: WorkerSettings
    log: LogCapture = field(default_factory=LogCapture)
    frames: list[Frame] = field(default_factory=list)
    observers: Observers = field(default_factory=observers)

    def __post_init__(self) -> None:
        self._news = anyio.Event()
        self.instruments = WorkerInstruments(Metrics())
        telemetry = RunTelemetry(Tracer(), self.instruments, captured(self.log), self.observers)
        self.runner = Runner(HandlerTable(self.app), self.settings, telemetry, tell=self.hear)

    def hear(self, frame: Frame) -> None:
        """Take a frame of the runner, on the test's loop."""
        self.frames.append(frame)
        self._news.set()

    def start(self, tool: str, arguments: Mapping[str, Any] = _NOTHING, **options: Any) -> CallWork:
        """Have a call run."""
        held = held_call(self.app, tool, arguments, **options)
        self.runner.obey(held)
        return held

    async def end(self, held: CallWork) -> Ended:
        """Wait for a call's end, which comes once."""
        with anyio.fail_after(5):
            while not self.ends(held):
                self._news = anyio.Event()
                await self._news.wait()
        [end] = self.ends(held)
        return end

    def ends(self, held: CallWork) -> list[Ended]:
        """The ends of a call."""
        return [frame for frame in self.frames if isinstance(frame, Ended) and frame.key == held.key]

    def reports(self, held: CallWork) -> list[Any]:
        """The reports of a call."""
        return [json.loads(frame.body) for frame in self.frames if isinstance(frame, Report) and frame.key == held.key]

    async def call(self, tool: str, arguments: Mapping[str, Any] = _NOTHING, **options: Any) -> Any:
        """Run a call to its end, and read its result."""
        end = await self.end(self.start(tool, arguments, **options))
        assert end.kind is FrameKind.RESULT
        return json.loads(end.body)

    def logs(self, held: CallWork) -> list[Any]:
        """The messages of a call for its client's log."""
        return [json.loads(frame.body) for frame in self.frames if isinstance(frame, Logged) and frame.key == held.key]

    async def asks(self, name: str, arguments: Mapping[str, Any] = _NOTHING, **options: Any) -> Any:
        """Run a call to its end, which is a question, and read it."""
        end = await self.end(self.start(name, arguments, **options))
        assert end.kind is FrameKind.ASK
        return json.loads(end.body)

    async def error(self, tool: str, arguments: Mapping[str, Any] = _NOTHING, **options: Any) -> tuple[Any, str | None]:
        """Run a call to its end, and read its error and the frame's line."""
        end = await self.end(self.start(tool, arguments, **options))
        assert end.kind is FrameKind.ERROR
        return json.loads(end.body), end.header


@asynccontextmanager
async def bench(app: App, **settings: Any) -> AsyncIterator[Bench]:
    """A runner for the length of a block."""
    made = Bench(app, WorkerSettings(**settings))
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.runner.run)
        yield made
        tasks.cancel_scope.cancel()
