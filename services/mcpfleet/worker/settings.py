"""The worker's settings."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from mcpfleet.contracts.call import MESSAGE_ROOM, FetchSettings
from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds


class WorkerSettings(FetchSettings, ProcessSettings):
    """What a worker can be told."""

    target: str = Field("", description="the application: path/to/app.py or module:attribute")
    pool: str = Field(
        "",
        pattern=rf"^$|{POOL_PATTERN}",
        description="the pool that it joins; named after the target if empty",
    )
    slots: int = Field(32, description="calls that run at once", gt=0)
    threads: int = Field(8, description="sync handlers that run at once", gt=0)
    queue: int = Field(8, description="calls that wait for a slot, beyond which the worker is busy", ge=0)
    accepted_after: Seconds = Field(
        0.5, gt=0, description="after which a taken call that said nothing says that it is here"
    )
    announce_interval: Seconds = Field(3.0, gt=0, description="between two announcements to the catalog")
    alive_interval: Seconds = Field(2.0, gt=0, description="between two lists of held calls to each edge")
    lost_after: Seconds = Field(
        6.0, gt=0, description="silence on a proven link after which an edge's calls are cancelled"
    )
    end_kept: Seconds = Field(15.0, gt=0, description="how long a call's end is kept, to be sent again")
    ends_limit: Bytes = Field(64 * 1024 * 1024, description="memory for ends that are kept")
    progress_rate: float = Field(20.0, description="progress reports a second that a call may send", gt=0)
    log_rate: float = Field(20.0, description="log messages a second that a call may send to its client", gt=0)
    inline_result: Bytes = Field(256 * 1024, description="largest result in its frame; larger ones are fetched")
    report_limit: Bytes = Field(8 * 1024, description="largest progress report, and log message to a client")
    ask_limit: Bytes = Field(
        128 * 1024, description="largest set of questions to a client, with what the call remembers meanwhile"
    )
    error_limit: Bytes = Field(64 * 1024, description="largest error that an application answers with")
    result_limit: Bytes = Field(7 * 1024 * 1024, description="largest result")
    task_slots: int = Field(24, description="slots that tasks may take, so that calls find some", gt=0)
    task_looks: Seconds = Field(2.0, gt=0, description="longest pause between two looks for tasks that wait")
    task_serves: Seconds = Field(
        15.0, gt=0, description="longest pause between two statements of which tools this worker runs tasks of"
    )
    task_extends: Seconds = Field(3.0, gt=0, description="between two renewals of the leases of tasks")
    task_says: Seconds = Field(1.0, gt=0, description="between two status messages of a worker's tasks")
    task_drops: Seconds = Field(
        60.0, gt=0, description="after which a task whose lease cannot be renewed is given up on this worker"
    )
    task_leaves: Seconds = Field(5.0, gt=0, description="how long a draining worker waits for the handlers of tasks")
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="share of the announcements of something new that are traced"
    )
    blocked_after: Seconds = Field(
        1.0, gt=0, description="after which a handler that holds the loop is named, and new calls go to other workers"
    )

    watched_lasts: Seconds = Field(
        45.0, gt=0, description="after which an edge that says nothing more watches nothing for the application"
    )
    watched_room: Bytes = Field(64 * 1024 * 1024, description="memory for the URIs that edges say are watched")

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
