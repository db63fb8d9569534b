"""The tasks service's settings."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from mcpfleet.contracts.call import MESSAGE_ROOM
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings

_MEBIBYTE: Final = 1024 * 1024
_DAY: Final = 86_400.0


class TasksSettings(StoreSettings, ProcessSettings):
    """What the tasks service reads at its start."""

    tasks_concurrency: int = Field(512, ge=1, description="questions that a tasks service answers at once")
    tasks_batch: int = Field(64, ge=1, description="tasks that are created, read or settled in one transaction")
    tasks_sweep: Seconds = Field(1.0, gt=0, description="how often leases, limits and retentions are looked at")
    task_lease: Seconds = Field(10.0, gt=0, description="how long a worker may be silent and still hold its tasks")
    tasks_away: Seconds = Field(
        3.0, gt=0, description="time without NATS or the store after which no lease lapses for one more lease"
    )
    task_unclaimed: Seconds = Field(_DAY, gt=0, description="how long a task may wait for its first worker")
    task_input_wait: Seconds = Field(_DAY, gt=0, description="how long a task may wait for its client's answers")
    task_stuck: Seconds = Field(60.0, gt=0, description="how long a task waits for a worker before it counts as stuck")
    task_gone: Seconds = Field(
        60.0, gt=0, description="after which a version of a tool that no worker says it has leaves its tasks to another"
    )
    task_removed: Seconds = Field(
        600.0, gt=0, description="after which a task ends that waits for a tool which no worker of its pool has"
    )
    task_backoff: Seconds = Field(1.0, description="pause after a task's second failed attempt; doubled with each more")
    task_backoff_most: Seconds = Field(60.0, description="longest pause between two attempts of a task")
    idempotency_kept: Seconds = Field(_DAY, gt=0, description="how long a result is kept under its idempotency key")
    task_origin_limit: Bytes = Field(
        5 * _MEBIBYTE, description="largest description of a task, its arguments among it, as JSON in a message"
    )
    task_memory_limit: Bytes = Field(
        2 * _MEBIBYTE, description="what a task's steps and answers may take together, as JSON in a message"
    )
    task_step_limit: Bytes = Field(_MEBIBYTE, description="largest result of a step, as JSON in a message")
    task_end_limit: Bytes = Field(7 * _MEBIBYTE, description="largest result of a task, as JSON in a message")
    task_questions: int = Field(256, ge=1, description="questions that a task may ask in its life")

    @model_validator(mode="after")
    def _tasks_fit_messages(self) -> Self:
        largest = max(self.task_origin_limit + self.task_memory_limit, self.task_end_limit)
        if largest + MESSAGE_ROOM > self.bus_max_payload:
            raise ValueError(
                "MCPFLEET_TASK_ORIGIN_LIMIT and MCPFLEET_TASK_MEMORY_LIMIT together, and MCPFLEET_TASK_END_LIMIT: "
                "must be 64 KiB less than MCPFLEET_BUS_MAX_PAYLOAD, at least"
            )
        return self
