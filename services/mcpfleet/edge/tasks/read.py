"""Reads tasks for their owners; for all other callers they do not exist (K8, K12).

A tool may be gone when its task is read. So each task keeps the tool's rules for callers, from its creation on.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic_core import from_json, to_json

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import Binding, TasksClient, TaskView, is_task_id
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.views.rights import fits
from mcpfleet.wire.errors import Rejection, bad_params, not_answered
from mcpfleet.wire.language import TAG_PATTERN
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, TASKS, TASKS_EXTENSION, missing

SERVICE: Final = "the tasks service"


async def find(client: TasksClient, task: str, endpoint: str, principal: Principal) -> TaskView | None:
    """Read a task as a caller of an endpoint; return None where this caller has no such task.

    Raises:
        BusError: the tasks service did not answer.
    """
    view = await client.get(task, Binding.of(endpoint, principal))
    return view if view is not None and policy_allows(view.policy, principal) else None


async def read(client: TasksClient, exchange: Exchange, task: str) -> TaskView:
    """Read a task as the caller of a request.

    Raises:
        Rejection: -32602, always in the same words, where this caller has no such task (K8, K12); 504.
    """
    if not is_task_id(task):
        raise unknown_task()
    try:
        view = await find(client, task, exchange.endpoint, exchange.caller)
    except BusError:
        raise not_answered(SERVICE) from None
    if view is None:
        raise unknown_task()
    return view


def unknown_task() -> Rejection:
    """Return the rejection for a task that the caller does not have (K8)."""
    return bad_params("unknown task")


def declares(exchange: Exchange) -> bool:
    """Return whether the client has declared tasks on this request (K2)."""
    return not missing((TASKS,), exchange.message.meta[CLIENT_CAPABILITIES_META_KEY])


def takes_tasks(exchange: Exchange) -> bool:
    """Return whether the endpoint has tasks for this client: its tools create them, or once did (K12)."""
    view = exchange.view
    return view.has_tasks and (TASKS_EXTENSION in view.capabilities.get("extensions", {}) or declares(exchange))


def policy_of(definition: Definition, language: str | None = None) -> str | None:
    """Return a tool's rules for callers as text, to be kept with its tasks, with the language of the task's texts.

    None where it has neither.
    """
    if not definition.scopes and not definition.only_for and language is None:
        return None
    told = {} if language is None else {"language": language}
    return to_json({"scopes": definition.scopes, "only_for": definition.only_for, **told}).decode()


def language_of(policy: str | None) -> str | None:
    """Return the language of a task's texts, which is that of its creator; None where that is unknown (X32)."""
    try:
        language = from_json(policy or "{}").get("language")
    except (ValueError, AttributeError):
        return None
    return language if isinstance(language, str) and re.fullmatch(TAG_PATTERN, language) else None


def policy_allows(policy: str | None, principal: Principal) -> bool:
    """Return whether the rules allow a caller; unreadable rules allow nobody."""
    if policy is None:
        return True
    try:
        kept = from_json(policy)
        scopes, only_for = kept["scopes"], kept["only_for"]
    except (ValueError, KeyError, TypeError):
        return False
    if only_for and not any(fits(rule, principal) for rule in only_for):
        return False
    return principal.holds(scopes)
