"""A task that a test takes through its states, as an edge and as a worker would."""

from __future__ import annotations

import secrets

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import Claimed, ClaimTasks, PoolTasksClient, Settle
from mcpfleet.contracts.tasks import Binding, NewTask, Status, TasksClient

REPORT = digest_of(b"report")
OWNER = Binding(endpoint="mcp", subject="ann", client="desk", tenant="acme")
WORKER = "w1"


async def make(edge: Bus, pool: str) -> None:
    """Make a task that waits for a worker; no worker of the fleet knows its definition."""
    task = NewTask(
        id=secrets.token_urlsafe(24), binding=OWNER, pool=pool, definition=REPORT, name="report", origin="{}"
    )
    await TasksClient(edge).create(task)


async def take(worker: Bus, pool: str) -> Claimed:
    """Take it."""
    wanted = ClaimTasks(claim=secrets.token_hex(16), process=WORKER, definitions=(REPORT,), most=1)
    [task] = (await PoolTasksClient(worker, pool).claim(wanted)).tasks
    return task


async def complete(worker: Bus, pool: str, task: Claimed) -> None:
    """End it."""
    end = '{"_meta":{}, "resultType":"complete","content":[]}'
    settle = Settle(id=task.id, fence=task.fence, status=Status.COMPLETED, end=end)
    assert not (await PoolTasksClient(worker, pool).settle(settle)).lost
