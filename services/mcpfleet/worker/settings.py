"""The worker's settings."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from mcpfleet.contracts.call import MESSAGE_ROOM, FetchSettings
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds


class WorkerSettings(FetchSettings, ProcessSettings):
    """The settings of a worker."""

    target: str = Field("", description="the application: path/to/app.py or module:attribute")
    pool: str = Field(
        "",
        pattern=rf"^$|{POOL_PATTERN}",
        description="the pool that the worker joins; named after the target if empty",
    )
    slots: int = Field(32, description="calls and tasks that run at once", gt=0)
    threads: int = Field(8, description="sync handlers that run at once", gt=0)
    queue: int = Field(8, description="calls that may wait for a slot; beyond them the worker is busy", ge=0)
    accepted_after: Seconds = Field(
        0.5, gt=0, description="how long a taken call may be silent before the worker confirms it to its edge"
    )
    announce_interval: Seconds = Field(3.0, gt=0, description="between two announcements to the catalog")
    alive_interval: Seconds = Field(2.0, gt=0, description="between two comparisons of held calls with each edge")
    lost_after: Seconds = Field(
        6.0, gt=0, description="how long an edge may be silent on a proven link before its calls are cancelled"
    )
    end_kept: Seconds = Field(15.0, gt=0, description="how long a call's end is kept, so that it can be sent again")
    ends_limit: Bytes = Field(64 * 1024 * 1024, description="memory for kept ends")
    progress_rate: float = Field(20.0, description="progress reports that a call may send each second", gt=0)
    log_rate: float = Field(20.0, description="log messages that a call may send to its client each second", gt=0)
    inline_result: Bytes = Field(
        256 * 1024, description="largest result that is sent in its frame; larger ones are fetched"
    )
    report_limit: Bytes = Field(8 * 1024, description="largest progress report, and largest log message to a client")
    ask_limit: Bytes = Field(
        128 * 1024, description="largest set of questions to a client, with the memory of the call"
    )
    error_limit: Bytes = Field(64 * 1024, description="largest error that an application may answer with")
    result_limit: Bytes = Field(7 * 1024 * 1024, description="largest result")
    task_slots: int = Field(24, description="slots that tasks may take; the others are left to calls", gt=0)
    task_looks: Seconds = Field(2.0, gt=0, description="longest pause between two claims of tasks that wait")
    task_serves: Seconds = Field(
        15.0, gt=0, description="longest pause between two reports of the tools whose tasks this worker runs"
    )
    task_extends: Seconds = Field(3.0, gt=0, description="between two renewals of task leases")
    task_says: Seconds = Field(1.0, gt=0, description="between two batches of status messages of a worker's tasks")
    task_drops: Seconds = Field(60.0, gt=0, description="how long this worker holds a task whose lease it cannot renew")
    task_leaves: Seconds = Field(5.0, gt=0, description="how long a draining worker waits for the handlers of tasks")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="share of announcements of something new that are traced")
    blocked_after: Seconds = Field(
        1.0,
        gt=0,
        description="how long a handler may hold the loop before it is named and new calls go to other workers",
    )

    watched_lasts: Seconds = Field(
        45.0, gt=0, description="how long an edge may be silent before its watched URIs count no more"
    )
    watched_room: Bytes = Field(64 * 1024 * 1024, description="memory for the URIs that edges watch")

    @model_validator(mode="after")
    def _results_fit_messages(self) -> Self:
        if self.result_limit + MESSAGE_ROOM > self.bus_max_payload:
            raise ValueError("MCPFLEET_RESULT_LIMIT: must be 64 KiB less than MCPFLEET_BUS_MAX_PAYLOAD, at least")
        if self.ask_limit + MESSAGE_ROOM > self.bus_max_payload:
            raise ValueError("MCPFLEET_ASK_LIMIT: must be 64 KiB less than MCPFLEET_BUS_MAX_PAYLOAD, at least")
        if self.result_limit > self.ends_limit:
            raise ValueError("MCPFLEET_ENDS_LIMIT: must be at least MCPFLEET_RESULT_LIMIT")
        return self

    @model_validator(mode="after")
    def _ends_outlast_their_fetching(self) -> Self:
        if self.end_kept < self.result_wait + self.result_fetch:
            raise ValueError("MCPFLEET_END_KEPT: must be at least MCPFLEET_RESULT_WAIT plus MCPFLEET_RESULT_FETCH")
        return self
