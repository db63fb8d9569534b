"""The senders and hearers on NATS, computed from the one table as NATS would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts import (
    call,
    catalog,
    hints,
    operator_tasks,
    permits,
    policy,
    pool_tasks,
    sessions,
    stats,
    subscriptions,
    tasks,
)
from mcpfleet.contracts.authorization import ADMIT, ADMIT_ALL
from mcpfleet.contracts.permissions import password_variable, permissions, server_settings, users
from mcpfleet.process.settings import ProcessSettings

USERS = users(["library", "other"])
FRAME = call.frame_subject("e1", "library", "7", call.FrameKind.RESULT)

MAY = {
    ADMIT.subject_for(): ("edge", "authorization"),
    ADMIT_ALL.subject_for(): ("edge", "authorization"),
    policy.VISIBLE.subject_for(): ("edge", "authorization"),
    policy.JUDGE.subject_for(): ("edge", "authorization"),
    catalog.SNAPSHOT.subject_for(): ("edge", "catalog"),
    catalog.WITHDRAW.subject_for(): ("operator", "catalog"),
    catalog.ANNOUNCE.subject_for(pool="library"): ("pool-library", "catalog"),
    catalog.hint_subject("mcp"): ("catalog", "edge"),
    hints.resource_hint_subject("mcp", "library", "k1"): ("pool-library", "edge subscriptions"),
    hints.resource_hint_subject("mcp", hints.OPERATOR_TOKEN, "k1"): ("operator", "edge subscriptions"),
    hints.extension_hint_subject("mcp", "library", "k1"): ("pool-library", "edge"),
    subscriptions.OPEN.subject_for(): ("edge", "subscriptions"),
    subscriptions.CLOSE.subject_for(): ("edge", "subscriptions"),
    subscriptions.LEASE.subject_for(): ("edge", "subscriptions"),
    sessions.BEGIN.subject_for(): ("edge", "subscriptions"),
    sessions.READ.subject_for(): ("edge", "subscriptions"),
    sessions.CHANGE.subject_for(): ("edge", "subscriptions"),
    sessions.END.subject_for(): ("edge", "subscriptions"),
    sessions.CHANGED_SUBJECT: ("subscriptions", "edge"),
    sessions.CANCELLED_SUBJECT: ("edge", "edge"),
    sessions.ANSWER.subject_for(edge="e1"): ("edge", "edge"),
    sessions.WATCH.subject_for(edge="e1"): ("edge", "edge"),
    tasks.CREATE.subject_for(): ("edge", "tasks"),
    tasks.GET.subject_for(): ("edge", "tasks"),
    tasks.UPDATE.subject_for(): ("edge", "tasks"),
    tasks.CANCEL.subject_for(): ("edge", "tasks"),
    tasks.VERSIONS.subject_for(): ("edge", "tasks"),
    tasks.RESERVE.subject_for(): ("edge", "tasks"),
    operator_tasks.LIST.subject_for(): ("operator", "tasks"),
    operator_tasks.STOP.subject_for(): ("operator", "tasks"),
    pool_tasks.DEFER.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.CLAIM.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.EXTEND.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.STEP.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.ASK.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.SETTLE.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.RELEASE.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.REMEMBER.subject_for(pool="library"): ("pool-library", "tasks"),
    pool_tasks.work_subject("library"): ("tasks", "pool-library"),
    pool_tasks.notify_subject("library", "w1"): ("tasks", "pool-library"),
    tasks.task_hint_subject(tasks.task_key("t1")): ("tasks", "edge"),
    call.call_subject("library", "d1"): ("edge", "pool-library"),
    call.pool_cancel_subject("library"): ("edge", "pool-library"),
    subscriptions.watched_subject("library"): ("edge", "pool-library"),
    permits.PERMIT.subject_for(pool="library", definition="d1"): ("edge", "pool-library"),
    permits.permits_hint_subject("library"): ("pool-library", "edge"),
    call.process_cancel_subject("library", "w1"): ("edge", "pool-library"),
    call.pull_subject("library", "w1"): ("edge", "pool-library"),
    call.ALIVE.subject_for(edge="e1", pool="library"): ("pool-library", "edge"),
    FRAME: ("pool-library", "edge"),
    # A receiver of it may answer it once; nobody may by name.
    call.reply_subject("e1", "7"): (None, "edge"),
    "inbox.edge.e1.7": (None, "edge"),
    "inbox.pool-library.w1.7": (None, "pool-library"),
    "inbox.edge.e1.self": ("edge", "edge"),
    "inbox.pool-library.w1.self": ("pool-library", "pool-library"),
}
"""Each subject that the code uses, with the one user that may send it and the one that may hear it."""


def matches(pattern: str, subject: str) -> bool:
    """Whether a pattern of NATS hears a subject."""
    wanted, got = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, got = wanted[:-1], got[: len(wanted) - 1] if len(got) >= len(wanted) else []
    return len(wanted) == len(got) and all(part in ("*", token) for part, token in zip(wanted, got, strict=True))


def who_may(verb: str, subject: str, prefix: str = "mcpfleet") -> set[str]:
    """The users whose rules allow a verb for a subject."""
    return {
        user
        for user, pool in USERS.items()
        if any(matches(pattern, f"{prefix}.{subject}") for pattern in permissions(user, pool, prefix)[verb]["allow"])
    }


@pytest.mark.parametrize(("subject", "may"), MAY.items(), ids=MAY)
def test_one_user_may_send_a_subject_and_few_may_hear_it(subject: str, may: tuple[str | None, str]) -> None:
    sender, hearers = may
    assert who_may("publish", subject) == ({sender} if sender else set())
    assert who_may("subscribe", subject) == set(hearers.split())


@pytest.mark.parametrize(
    "subject",
    [
        ADMIT.pattern(),
        catalog.SNAPSHOT.pattern(),
        catalog.WITHDRAW.pattern(),
        catalog.ANNOUNCE.pattern(),
        tasks.GET.pattern(),
        pool_tasks.CLAIM.pattern(),
        call.ALIVE.pattern(),
        sessions.CHANGE.pattern(),
        sessions.ANSWER.pattern(),
        sessions.WATCH.pattern(),
    ],
)
def test_the_pattern_by_which_a_service_hears_an_rpc_is_permitted(subject: str) -> None:
    """NATS refuses a subscription that is wider than what is allowed."""
    pool = "library" if subject.startswith("edge.") else None
    hearer = MAY[next(one for one in MAY if matches(subject, one))][1].split()[0]
    allowed = permissions(hearer, pool if hearer.startswith("pool") else None, "mcpfleet")["subscribe"]["allow"]
    assert any(matches(pattern, f"mcpfleet.{subject}") for pattern in allowed)


@pytest.mark.parametrize(
    "subject", [call.edge_subjects("e1"), hints.resource_hints("mcp", "k1"), hints.resource_hints("mcp")]
)
def test_the_subscriptions_of_an_edge_are_permitted(subject: str) -> None:
    allowed = permissions("edge", None, "mcpfleet")["subscribe"]["allow"]
    assert any(matches(pattern, f"mcpfleet.{subject}") for pattern in allowed)


@pytest.mark.rule("invariant 13")
@pytest.mark.parametrize("verb", ["publish", "subscribe"])
@pytest.mark.parametrize("user", USERS)
def test_a_pools_name_stands_only_in_its_own_users_rules(user: str, verb: str) -> None:
    """A worker is the least trusted process: invariant 13."""
    rules: list[str] = permissions(user, USERS[user], "mcpfleet")[verb]["allow"]
    for pool in ("library", "other"):
        if user != f"pool-{pool}":
            assert not any(pool in token.split("-") for rule in rules for token in rule.split("."))


def test_no_rule_is_wider_than_the_fleets_prefix() -> None:
    """Several fleets may share a NATS, each under its own prefix."""
    rules = [
        rule
        for user, pool in USERS.items()
        for verb in ("publish", "subscribe")
        for rule in permissions(user, pool, "acme.one")[verb]["allow"]
        if not rule.startswith("$SRV.")
    ]
    assert all(rule.startswith("acme.one.") for rule in rules)
    assert who_may("publish", "catalog.snapshot", "acme.one") == {"edge"}


def test_only_an_operator_asks_for_natss_own_discovery_and_everybody_answers() -> None:
    def holders(verb: str) -> set[str]:
        return {user for user, pool in USERS.items() if "$SRV.>" in permissions(user, pool, "mcpfleet")[verb]["allow"]}

    assert holders("publish") == {"operator"}
    assert holders("subscribe") == USERS.keys() - {"operator"}


@pytest.mark.parametrize("role", stats.Role)
def test_each_service_publishes_its_own_stats_and_workers_and_operators_hear_none(role: stats.Role) -> None:
    subject = stats.service_stats_subject(role, "p1")
    assert who_may("publish", subject) == {role.value}
    assert who_may("subscribe", subject) == who_may("subscribe", stats.ALL_SUBJECTS) == set(stats.Role)


def test_a_worker_publishes_its_stats_under_its_pools_name_alone() -> None:
    subject = stats.pool_stats_subject("library", "0" * 16)
    assert who_may("publish", subject) == {"pool-library"}
    assert who_may("subscribe", subject) == set(stats.Role)


@pytest.mark.parametrize("user", USERS)
def test_whoever_was_asked_may_answer_once(user: str) -> None:
    assert permissions(user, USERS[user], "mcpfleet")["allow_responses"] == {"max": 1, "expires": "30s"}


def test_every_user_has_a_password_of_its_own() -> None:
    variables = [password_variable(user) for user in USERS]
    assert len(set(variables)) == len(USERS)
    assert password_variable("pool-my-app") == "MCPFLEET_NATS_PASSWORD_POOL_MY_APP"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "max_payload: 8388608"),
        ({}, 'ping_interval: "2s"'),
        ({}, "ping_max: 1"),
        ({}, 'write_deadline: "2s"'),
        ({"bus_max_payload": 4096}, "max_payload: 4096"),
        ({"bus_question_every": 0.5}, 'ping_interval: "0.5s"'),
        ({"bus_dead_after": 0.1}, 'write_deadline: "0.1s"'),
    ],
)
def test_nats_keeps_the_bounds_and_intervals_of_the_bus(settings: dict[str, Any], line: str) -> None:
    assert line in server_settings([], ProcessSettings(**settings)).splitlines()


def test_a_password_is_quoted_where_it_is_given_and_a_variable_where_it_is_not() -> None:
    given = server_settings([], ProcessSettings(), lambda user: f'{user} "quoted" $HOME')
    assert json.dumps('edge "quoted" $HOME') in given
    assert "password: $MCPFLEET_NATS_PASSWORD_EDGE," in server_settings([], ProcessSettings())
