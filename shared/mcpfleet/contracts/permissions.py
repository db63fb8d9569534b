"""The permissions on NATS: one table of senders and hearers, and the users and server settings made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from mcpfleet.bus.discovery import SUBJECT as SERVICES_SUBJECT
from mcpfleet.contracts.hints import OPERATOR_TOKEN
from mcpfleet.contracts.stats import ALL_SUBJECTS, Role
from mcpfleet.process.settings import ProcessSettings

POOL: Final = "pool"
"""In the table: each pool's own user, which may put only its own name in place of `{pool}`."""
RESPONSE_EXPIRES: Final = "30s"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of subject, without the fleet's prefix."""

    subject: str
    senders: tuple[str, ...]
    hearers: tuple[str, ...]


_FROM_EDGES: Final = ("create", "get", "update", "cancel", "versions", "reserve")
_OF_SESSIONS: Final = ("begin", "read", "change", "end")
_FROM_POOLS: Final = ("defer", "claim", "extend", "step", "ask", "settle", "release", "remember", "serve")

TABLE: Final = (
    Row("authorization.admit", ("edge",), ("authorization",)),
    Row("authorization.admit_all", ("edge",), ("authorization",)),
    Row("authorization.changes", ("edge",), ("authorization",)),
    Row("authorization.limits", ("edge",), ("authorization",)),
    Row("authorization.limits_all", ("edge",), ("authorization",)),
    Row("authorization.renew", ("subscriptions",), ("authorization",)),
    Row("authorization.visible", ("edge",), ("authorization",)),
    Row("authorization.judge", ("edge",), ("authorization",)),
    Row("authorization.revoke", ("operator",), ("authorization",)),
    Row("hint.authority", ("authorization",), ("edge", "subscriptions")),
    Row("catalog.snapshot", ("edge",), ("catalog",)),
    Row("catalog.file.put.{pool}", (POOL,), ("catalog",)),
    Row("catalog.file.get", ("edge",), ("catalog",)),
    Row("catalog.withdraw", ("operator",), ("catalog",)),
    Row("catalog.announce.{pool}", (POOL,), ("catalog",)),
    Row("subscriptions.open", ("edge",), ("subscriptions",)),
    Row("subscriptions.close", ("edge",), ("subscriptions",)),
    Row("subscriptions.lease", ("edge",), ("subscriptions",)),
    *(Row(f"subscriptions.session.{verb}", ("edge",), ("subscriptions",)) for verb in _OF_SESSIONS),
    Row("subscriptions.place.{pool}", (POOL,), ("subscriptions",)),
    Row("hint.session", ("subscriptions",), ("edge",)),
    Row("session.cancelled", ("edge",), ("edge",)),
    Row("session.*.answer", ("edge",), ("edge",)),
    Row("session.*.watch", ("edge",), ("edge",)),
    *(Row(f"tasks.{verb}", ("edge",), ("tasks",)) for verb in _FROM_EDGES),
    Row("tasks.operator.list", ("operator",), ("tasks",)),
    Row("tasks.operator.cancel", ("operator",), ("tasks",)),
    *(Row(f"tasks.pool.{{pool}}.{verb}", (POOL,), ("tasks",)) for verb in _FROM_POOLS),
    Row("pool.{pool}.work", ("tasks",), (POOL,)),
    Row("process.pool.{pool}.*.nudge", ("tasks",), (POOL,)),
    Row("hint.task.*", ("tasks",), ("edge",)),
    Row("pool.{pool}.*.call", ("edge",), (POOL,)),
    Row("pool.{pool}.*.permit", ("edge",), (POOL,)),
    Row("hint.permits.{pool}", (POOL,), ("edge",)),
    Row("pool.{pool}.cancel", ("edge",), (POOL,)),
    Row("pool.{pool}.watched", ("edge",), (POOL,)),
    Row("process.pool.{pool}.*.cancel", ("edge",), (POOL,)),
    Row("process.pool.{pool}.*.call", (POOL,), (POOL,)),
    Row("process.pool.{pool}.*.pull", ("edge",), (POOL,)),
    Row("edge.*.frames.{pool}.>", (POOL,), ("edge",)),
    Row("edge.*.alive.{pool}", (POOL,), ("edge",)),
    # An edge hears everything addressed to it by one subscription, including refusals of its calls.
    Row("edge.*.>", (), ("edge",)),
    Row("hint.catalog.*", ("catalog",), ("edge",)),
    Row("hint.resource.*.{pool}.*", (POOL,), ("edge", "subscriptions")),
    Row("hint.list.*.{pool}", (POOL,), ("edge",)),
    Row("hint.extension.*.{pool}.*", (POOL,), ("edge",)),
    Row(f"hint.resource.*.{OPERATOR_TOKEN}.*", ("operator",), ()),
    # Any process but a worker may have a console, which hears all stats by one subscription.
    *(Row(f"figures.{role}.*", (role.value,), ()) for role in Role),
    Row("figures.pool.{pool}.*", (POOL,), ()),
    Row(ALL_SUBJECTS, (), tuple(role.value for role in Role)),
)
"""Short answers need no row: NATS lets the receiver of a question answer once (`allow_responses`)."""

OPERATOR: Final = "operator"
SERVICES: Final = ("edge", "authorization", "catalog", "subscriptions", "tasks", OPERATOR)


def pool_user(pool: str) -> str:
    """Return the NATS user of a pool's workers."""
    return f"{POOL}-{pool}"


def users(pools: Iterable[str]) -> dict[str, str | None]:
    """Return every user of a fleet, with the pool that it speaks for."""
    return dict.fromkeys(SERVICES) | {pool_user(pool): pool for pool in pools}


def permissions(user: str, pool: str | None, prefix: str) -> dict[str, Any]:
    """Return the permissions of one user, in the form of NATS's configuration."""
    role = user if pool is None else POOL

    def whole(subject: str) -> str:
        return f"{prefix}.{subject.replace('{pool}', pool or '*')}"

    # Its own inbox: all processes of the user read it, and write it only in questions to themselves.
    publish = [f"{prefix}.inbox.{user}.*.self"] + [whole(row.subject) for row in TABLE if role in row.senders]
    subscribe = [f"{prefix}.inbox.{user}.>"] + [whole(row.subject) for row in TABLE if role in row.hearers]
    # Every process answers `nats micro list`. The operator asks, and the answers come to an inbox of its own.
    if role == OPERATOR:
        publish.append(f"{SERVICES_SUBJECT}.>")
    else:
        subscribe.append(f"{SERVICES_SUBJECT}.>")
    return {
        "publish": {"allow": publish},
        "subscribe": {"allow": subscribe},
        "allow_responses": {"max": 1, "expires": RESPONSE_EXPIRES},
    }


def password_variable(user: str) -> str:
    """Return the environment variable from which NATS reads a user's password."""
    return f"MCPFLEET_NATS_PASSWORD_{user.upper().replace('-', '_')}"


def server_settings(
    pools: Iterable[str], settings: ProcessSettings, password: Callable[[str], str] | None = None
) -> str:
    """Write the part of `nats.conf` that every fleet needs; the operator chooses the address of NATS.

    Args:
        pools: the pools that get a user.
        settings: the prefix, and the sizes and intervals that NATS must share.
        password: returns a user's password; by default NATS reads each from the environment (`password_variable`).
    """
    lines = [
        f"max_payload: {settings.bus_max_payload}",
        # A paused process leaves its groups within two to four seconds, so it takes no call with it.
        f'ping_interval: "{settings.bus_question_every:g}s"',
        "ping_max: 1",
        f'write_deadline: "{settings.bus_dead_after:g}s"',
        "authorization {",
        "  users = [",
    ]
    for user, pool in users(pools).items():
        secret = json.dumps(password(user)) if password else f"${password_variable(user)}"
        rules = json.dumps(permissions(user, pool, settings.subject_prefix))
        lines.append(f'    {{user: "{user}", password: {secret}, permissions: {rules}}}')
    return "\n".join([*lines, "  ]", "}", ""])
