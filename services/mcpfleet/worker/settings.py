"""The worker's settings."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from mcpfleet.contracts.call import MESSAGE_ROOM, FetchSettings
from mcpfleet.contracts.files import FileSettings
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds


class WorkerSettings(FileSettings, FetchSettings, ProcessSettings):
    """The settings of a worker."""

    target: str = Field("", description="the application: path/to/app.py or module:attribute; or fleet.toml:NAME")
    pool: str = Field(
        "",
        pattern=rf"^$|{POOL_PATTERN}",
        description="the pool that the worker joins; named after the App if empty",
    )
    slots: int = Field(32, description="the most calls and tasks that run at once", gt=0)
    threads: int = Field(8, description="the most plain functions that run at once", gt=0)
    queue: int = Field(8, description="the most calls that wait for a slot; beyond them the worker answers busy", ge=0)
    accepted_after: Seconds = Field(
        0.5, gt=0, description="how long a taken call may be silent before the worker confirms it to its edge"
    )
    announce_interval: Seconds = Field(3.0, gt=0, description="how often the worker announces itself to the catalog")
    alive_interval: Seconds = Field(
        2.0, gt=0, description="how often the worker compares its running calls with each edge"
    )
    lost_after: Seconds = Field(
        6.0, gt=0, description="how long an edge may be silent on a proven link before its calls are cancelled"
    )
    end_kept: Seconds = Field(15.0, gt=0, description="how long a call's end is kept, so that it can be sent again")
    ends_limit: Bytes = Field(64 * 1024 * 1024, description="memory for the kept ends of calls")
    progress_rate: float = Field(20.0, description="the most progress reports that a call sends each second", gt=0)
    log_rate: float = Field(20.0, description="the most log messages that a call sends to its client each second", gt=0)
    inline_result: Bytes = Field(
        256 * 1024, description="the largest result that is sent in its frame; the edge fetches larger ones"
    )
    report_limit: Bytes = Field(
        8 * 1024, description="the largest progress report, and the largest log message to a client"
    )
    ask_limit: Bytes = Field(
        128 * 1024, description="the largest set of questions to a client, with the call's remembered answers and steps"
    )
    error_limit: Bytes = Field(64 * 1024, description="the largest error of an application")
    result_limit: Bytes = Field(7 * 1024 * 1024, description="the largest result of a handler")
    task_slots: int = Field(24, description="the most slots that tasks take; the others are for calls", gt=0)
    task_looks: Seconds = Field(2.0, gt=0, description="the longest pause between two claims of waiting tasks")
    task_serves: Seconds = Field(
        15.0, gt=0, description="the longest pause between two reports of the tools whose tasks this worker runs"
    )
    task_extends: Seconds = Field(3.0, gt=0, description="how often the worker renews the leases of its tasks")
    task_says: Seconds = Field(1.0, gt=0, description="how often the worker sends the status messages of its tasks")
    task_drops: Seconds = Field(60.0, gt=0, description="how long this worker holds a task whose lease it cannot renew")
    task_leaves: Seconds = Field(5.0, gt=0, description="how long a draining worker waits for the handlers of tasks")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="the share of announcements with changes that are traced")
    ui_limit: Bytes = Field(1024 * 1024, description="the largest document of MCP Apps")
    files_reread: Seconds = Field(5.0, gt=0, description="how often the application's files are compared with the disk")
    blocked_after: Seconds = Field(
        1.0,
        gt=0,
        description="how long a handler may block the loop before the log names it and new calls go to other workers",
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
