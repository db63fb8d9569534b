"""The four ways that every task goes, as one statement each on PostgreSQL: made, read, claimed, settled.

What they do is what the transactions beside their callers do, which are for SQLite and for all that is rare: the same
contract tests (`tests/contract/store/test_tasks_*.py`) hold both, PostgreSQL with these and SQLite without. Rows are
locked in the order of their ids there too, and what is compared with time is compared by the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcpfleet.contracts.pool_tasks import ClaimTasks
from mcpfleet.store.singles import NOW, SingleRow, Singles
from mcpfleet.tasks.rules import BESIDE, VANISHED_BEFORE_ALONE
from mcpfleet.tasks.tables import BROUGHT, GOING_ON

_GOING_ON: Final = "(" + ", ".join(f"'{status}'" for status in GOING_ON) + ")"
_LISTS: Final = ", ".join(f"${number}::{kind}[]" for number, (_, kind) in enumerate(BROUGHT.items(), 1))

_MAKE: Final = f"""
WITH made AS (
  INSERT INTO tasks_states (
    {", ".join(BROUGHT)},
    status, version, attempts, vanished, memory, questions, fence, created_at, updated_at, ready_at, until
  )
  SELECT new.*, 'working', 1, 0, 0, 0, 0, 0, {NOW}, {NOW}, {NOW}, {NOW} + ${len(BROUGHT) + 2}
  FROM unnest({_LISTS}) AS new
  ON CONFLICT DO NOTHING
)
INSERT INTO tasks_origins (task, origin)
SELECT * FROM unnest($1::text[], ${len(BROUGHT) + 1}::text[])
ON CONFLICT DO NOTHING
"""  # noqa: S608  # of constants

_READ: Final = f"""
SELECT
  task.id, task.binding, endpoint, pool, definition, name, origin_digest, status, version, created_at, updated_at,
  until, poll_ms, questions, message, policy, "end"
FROM unnest($1::text[], $2::text[]) AS wanted (id, binding)
JOIN tasks_states AS task ON task.id = wanted.id AND task.binding = wanted.binding
WHERE status IN {_GOING_ON} OR until > {NOW}
"""  # noqa: S608  # of constants

_CLAIM: Final = f"""
WITH waiting AS MATERIALIZED (
  SELECT id, size + memory + {BESIDE} AS size, vanished, ready_at
  FROM tasks_states
  WHERE pool = $1 AND ready_at <= {NOW} AND definition = ANY($2::text[])
  ORDER BY ready_at
  LIMIT $3::bigint + $4::bigint
  FOR UPDATE SKIP LOCKED
), choice AS MATERIALIZED (
  SELECT
    count(*) AS many, count(*) > 0 AND (sum(size) > $5::bigint OR max(vanished) >= {VANISHED_BEFORE_ALONE}) AS is_hard
  FROM waiting
), taken AS (
  UPDATE tasks_states AS task
  SET
    fence = fence + 1, holder = $6, claim = $7, lease_until = {NOW} + $8, ready_at = NULL,
    until = CASE WHEN fence = 0 THEN {NOW} + run_left ELSE until END
  FROM (SELECT id, ready_at AS since FROM waiting ORDER BY ready_at LIMIT $3::bigint) AS first
  WHERE task.id = first.id AND NOT (SELECT is_hard FROM choice)
  RETURNING
    task.id, fence, definition, name, attempts, vanished, until - {NOW} AS "limit", message, first.since
)
SELECT choice.is_hard, taken.*, origin
FROM choice LEFT JOIN taken ON true LEFT JOIN tasks_origins ON task = taken.id
ORDER BY since
"""  # noqa: S608  # of constants

_SETTLE: Final = f"""
WITH held AS MATERIALIZED (
  SELECT id FROM tasks_states
  WHERE id = ANY($1::text[]) AND lease_until IS NOT NULL
  ORDER BY id
  FOR UPDATE
)
UPDATE tasks_states AS task
SET
  status = ending.status, "end" = ending.text,
  message = CASE WHEN ending.message IS NULL OR ending.progress <= task.progress
    THEN task.message ELSE ending.message END,
  progress = CASE WHEN ending.message IS NULL THEN task.progress ELSE GREATEST(task.progress, ending.progress) END,
  version = version + 1, updated_at = {NOW}, until = {NOW} + retention,
  ready_at = NULL, lease_until = NULL, questions = 0
FROM
  unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::text[], $6::text[], $7::float8[])
    AS ending (id, pool, fence, status, text, message, progress)
  JOIN held ON held.id = ending.id
WHERE
  task.id = ending.id AND task.pool = ending.pool AND task.fence = ending.fence AND task.lease_until IS NOT NULL
RETURNING task.id, task.fence, task.version
"""  # noqa: S608  # of constants


async def make(
    singles: Singles, wanted: Callable[[], Sequence[tuple[Mapping[str, Any], str]]], unclaimed: float
) -> None:
    """Make tasks that wait for a worker, in their order; those whose ids are there stay as they are.

    Args:
        singles: of the store.
        wanted: says just before they are sent which tasks to make, each by its columns and its origin.
        unclaimed: seconds for which they may wait.
    """

    def values() -> tuple[object, ...] | None:
        tasks = wanted()
        if not tasks:
            return None
        lists = ([columns[name] for columns, _ in tasks] for name in BROUGHT)
        return (*lists, [origin for _, origin in tasks], unclaimed)

    await singles.fetch(_MAKE, writes=True, late=values)


async def read(singles: Singles, wanted: Sequence[tuple[str, str]]) -> list[SingleRow]:
    """Read the live ones of tasks, each by its id and its owner's binding."""
    ids, bindings = zip(*wanted, strict=True)
    return await singles.fetch(_READ, ids, bindings)


async def claim(
    singles: Singles, pool: str, wanted: ClaimTasks, *, beyond: int, budget: int, lease: float
) -> list[SingleRow] | None:
    """Take the tasks that wait longest; none where one must run alone, or all are too much for one message.

    Args:
        singles: of the store.
        pool: the claimer's.
        wanted: what it asks for.
        beyond: tasks that are looked at beyond those that it wants.
        budget: bytes of a message.
        lease: seconds.
    """
    rows = await singles.fetch(
        _CLAIM, pool, wanted.definitions, wanted.most, beyond, budget, wanted.process, wanted.claim, lease,
        writes=True,
    )  # fmt: skip
    return None if rows[0].is_hard else [row for row in rows if row.id is not None]


async def settle(
    singles: Singles, ends: Sequence[tuple[str, str, int, str, str | None, str | None, float | None]]
) -> list[SingleRow]:
    """End tasks as their holders: each by its id, pool and fence, with status, text, status message and progress.

    Returns:
        Id, fence and new version of each that was held by that fence.
    """
    return await singles.fetch(_SETTLE, *zip(*ends, strict=True), writes=True)
