"""The router of frames: each frame from the handlers' loop goes to the side that holds its work."""

from __future__ import annotations

from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.tasks.actor import TaskActor
from mcpfleet.worker.work import Ended, Frame, Report, StatusReport, TaskKey


class FrameRouter:
    """Routes by the kind of work, which a frame's key tells. It lives on the bus's loop."""

    def __init__(self, calls: CallActor, tasks: TaskActor) -> None:
        self._calls = calls
        self._tasks = tasks

    def route(self, frame: Frame) -> None:
        """Hand a frame to calls or to tasks."""
        if isinstance(frame, Ended):
            key = frame.key
            if isinstance(key, TaskKey):
                self._tasks.end(key, frame)
            else:
                self._calls.end(key, frame)
        elif isinstance(frame, Report):
            self._calls.report(frame)
        elif isinstance(frame, StatusReport):
            self._tasks.report(frame)
        else:
            self._calls.log(frame)
