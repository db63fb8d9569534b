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
    """The settings that the tasks service reads at its start."""

    tasks_concurrency: int = Field(512, ge=1, description="requests that a tasks service answers at once")
    tasks_batch: int = Field(64, ge=1, description="tasks that are created, read or settled in one transaction")
    tasks_sweep: Seconds = Field(1.0, gt=0, description="how often leases, limits and retentions are checked")
    task_lease: Seconds = Field(10.0, gt=0, description="how long a worker may be silent and still hold its tasks")
    tasks_away: Seconds = Field(
        3.0, gt=0, description="time without NATS or the store after which all leases get their whole time again"
    )
    task_unclaimed: Seconds = Field(_DAY, gt=0, description="how long a task may wait for its first worker")
    task_input_wait: Seconds = Field(_DAY, gt=0, description="how long a task may wait for its client's answers")
    task_stuck: Seconds = Field(
        60.0, gt=0, description="how long a task may wait for a worker before it counts as stuck"
    )
    task_gone: Seconds = Field(
        60.0,
        gt=0,
        description="how long no worker may report a version of a tool before its tasks move to another version",
    )
    task_removed: Seconds = Field(
        600.0, gt=0, description="how long a task may wait for a tool that no worker of its pool has, before it ends"
    )
    task_backoff: Seconds = Field(
        1.0, description="pause after a task's second failed attempt; it doubles with each further one"
    )
    task_backoff_most: Seconds = Field(60.0, description="longest pause between two attempts of a task")
    idempotency_kept: Seconds = Field(_DAY, gt=0, description="how long a result is kept under its idempotency key")
    task_origin_limit: Bytes = Field(
        5 * _MEBIBYTE, description="largest description of a task, including its arguments, as JSON in a message"
    )
    task_memory_limit: Bytes = Field(
        2 * _MEBIBYTE, description="largest size of a task's steps and answers together, as JSON in a message"
    )
    task_step_limit: Bytes = Field(_MEBIBYTE, description="largest result of a step, as JSON in a message")
    task_end_limit: Bytes = Field(7 * _MEBIBYTE, description="largest result of a task, as JSON in a message")
    task_questions: int = Field(256, ge=1, description="questions that a task may ask over its life")

    @model_validator(mode="after")
    def _tasks_fit_messages(self) -> Self:
        largest = max(self.task_origin_limit + self.task_memory_limit, self.task_end_limit)
        if largest + MESSAGE_ROOM > self.bus_max_payload:
            raise ValueError(
                "MCPFLEET_TASK_ORIGIN_LIMIT and MCPFLEET_TASK_MEMORY_LIMIT together, and MCPFLEET_TASK_END_LIMIT: "
                "must be 64 KiB less than MCPFLEET_BUS_MAX_PAYLOAD, at least"
            )
        return self
