"""Reads tasks as who owns them: all others are told that there is none (K8, K12)."""

from __future__ import annotations

from typing import Final

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import Binding, TasksClient, TaskView, is_task_id
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.tasks import policy
from mcpfleet.wire.errors import Rejection, bad_params, not_answered

SERVICE: Final = "the tasks service"


async def find(client: TasksClient, task: str, endpoint: str, principal: Principal) -> TaskView | None:
    """Read a task as a caller of an endpoint; none where there is none for this caller.

    Raises:
        BusError: nobody could be asked.
    """
    view = await client.get(task, Binding.of(endpoint, principal))
    return view if view is not None and policy.allows(view.policy, principal) else None


async def read(client: TasksClient, inquiry: Inquiry, task: str) -> TaskView:
    """Read a task as the caller of a request.

    Raises:
        Rejection: -32602, always in the same words, where there is none for this caller (K8, K12); 504.
    """
    if not is_task_id(task):
        raise unknown_task()
    try:
        view = await find(client, task, inquiry.request.endpoint, inquiry.principal)
    except BusError:
        raise not_answered(SERVICE) from None
    if view is None:
        raise unknown_task()
    return view


def unknown_task() -> Rejection:
    """There is no such task, for this caller (K8)."""
    return bad_params("unknown task")
