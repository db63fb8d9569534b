"""The defaults of an edge and a worker, as the documentation states them: a change is a decision, not an accident."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.worker.settings import WorkerSettings

MIB = 1024 * 1024

PROCESS = {
    "bus_question_every": 2,
    "bus_dead_after": 2,
    "bus_reconnect_jitter": 1,
    "bus_start_within": 2,
    "bus_clock_tolerance": 1,
    "bus_hop_margin": 0.05,
    "bus_max_payload": 8 * MIB,
    "drain": 30,
    "last_deadline": 60,
}
EDGE = {
    "max_request": 7 * MIB,
    "admission_entries": 10_000,
    "authority_silence": 5,
    "rate_requests": "none",
    "rate_tools": "6000/60",
    "rate_completions": "6000/60",
    "rate_anonymous": "none",
    "rate_unknown": "allow",
    "rate_wait": 1,
    "snapshot_lasts": 10,
    "heal_interval": 15,
    "queue_size": 256,
    "repeats_waiting": 1000,
    "queue_wait": 5,
    "probe_min": 0.05,
    "probe_max": 0.25,
    "unaccepted_after": 4,
    "lost_after": 6,
    "notices_kept": 16,
    "silent_after": 15,
    "keepalive": 15,
    "write_timeout": 30,
    "request_room": 64 * MIB,
    "result_room": 64 * MIB,
    "result_limit": 7 * MIB,
    "max_streams": 8192,
    "stream_keys": 256,
    "stream_pending": 128,
    "stream_lasts": 24 * 3600,
    "permission_lasts": 60,
    "streams_leased": 5,
    "watched_tasks": 10_000,
    "task_shown_within": 5,
    "result_wait": 8,
    "result_fetch": 5,
    "watched_keys": 2000,
    "watched_stated": 15,
    "watched_room": 64 * MIB,
    "catch_up_rate": 500,
    "catch_up_lasts": 60,
    "lame": 10,
    "unready_after": 30,
}
SUBSCRIPTIONS = {"partition_streams": 256, "edge_lost": 20}
WORKER = {
    "slots": 32,
    "threads": 8,
    "queue": 8,
    "accepted_after": 0.5,
    "alive_interval": 2,
    "lost_after": 6,
    "end_kept": 15,
    "result_wait": 8,
    "result_fetch": 5,
    "ends_limit": 64 * MIB,
    "progress_rate": 20,
    "result_limit": 7 * MIB,
    "inline_result": 256 * 1024,
    "task_slots": 24,
    "task_looks": 2,
    "task_extends": 3,
    "task_says": 1,
    "task_serves": 15,
}
TASKS = {
    "task_lease": 10,
    "tasks_away": 3,
    "tasks_sweep": 1,
    "task_unclaimed": 24 * 3600,
    "task_input_wait": 24 * 3600,
    "task_stuck": 60,
    "task_gone": 60,
    "task_removed": 600,
    "idempotency_kept": 24 * 3600,
    "task_step_limit": MIB,
    "task_end_limit": 7 * MIB,
}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        pytest.param(settings, name, value, id=f"{type(settings).__name__}.{name}")
        for settings, table in (
            (ProcessSettings(), PROCESS),
            (EdgeSettings(), EDGE),
            (SubscriptionsSettings(), SUBSCRIPTIONS),
            (WorkerSettings(), WORKER),
            (TasksSettings(), TASKS),
        )
        for name, value in table.items()
    ],
)
def test_a_default(settings: ProcessSettings, name: str, value: Any) -> None:
    assert getattr(settings, name) == value


@pytest.mark.rule("N4")
def test_a_stream_shows_that_it_lives_before_a_stalled_write_would_end_it() -> None:
    assert EdgeSettings().keepalive < EdgeSettings().write_timeout


def test_an_edge_renews_what_is_counted_for_it_before_it_is_taken_for_dead() -> None:
    """One lease may be lost; and a dead edge's streams are free within 30 s."""
    assert 2 * 1.2 * EdgeSettings().streams_leased < SubscriptionsSettings().edge_lost < 30


@pytest.mark.rule("D8")
def test_a_killed_workers_task_runs_again_in_15_s_and_a_lease_has_three_renewals() -> None:
    tasks, worker = TasksSettings(), WorkerSettings()
    assert tasks.task_lease + tasks.tasks_sweep + worker.task_looks <= 15
    assert 3 * worker.task_extends < tasks.task_lease


@pytest.mark.rule("K21")
def test_a_version_that_is_heard_is_not_gone_and_one_that_comes_back_has_time() -> None:
    tasks, worker = TasksSettings(), WorkerSettings()
    assert 3 * worker.task_serves < tasks.task_gone < tasks.task_removed


def test_a_worker_accepts_before_its_edge_gives_up() -> None:
    assert WorkerSettings().accepted_after < EdgeSettings().unaccepted_after


def test_whoever_is_missed_twice_is_not_lost_yet() -> None:
    """One message may be lost without a call's end being told."""
    assert 2 * WorkerSettings().alive_interval < min(EdgeSettings().lost_after, WorkerSettings().lost_after)


def test_a_result_fits_into_a_message_and_so_do_arguments() -> None:
    room = ProcessSettings().bus_max_payload
    assert max(WorkerSettings().result_limit, EdgeSettings().max_request) < room


def test_an_edge_is_gone_before_it_is_cut_off() -> None:
    """The last deadline comes after leading clients away and finishing what runs; Kubernetes gives 75 s."""
    settings = EdgeSettings()
    assert settings.lame + settings.drain < settings.last_deadline < 75
