"""The method table: one row for each method that the edge serves. Read it and you know the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from mcpfleet.edge.methods.invoke import Invoker
from mcpfleet.edge.methods.lists import Lists
from mcpfleet.edge.methods.sessions import SessionMethods
from mcpfleet.edge.methods.skills import SkillMethods, has_skills
from mcpfleet.edge.methods.tasks import TaskMethods
from mcpfleet.edge.protocol import schema
from mcpfleet.edge.protocol.exchange import Exchange, Method, no_target
from mcpfleet.edge.streams.listen import ListenStreams
from mcpfleet.edge.tasks.read import takes_tasks
from mcpfleet.views.view import Target
from mcpfleet.wire.protocol import LEGACY, MODERN

MODERN_ONLY: Final = frozenset({MODERN})
SESSION_ERA: Final = frozenset(LEGACY)
EVERY: Final = MODERN_ONLY | SESSION_ERA

Declared = Callable[[str], Mapping[str, Method]]
"""Returns the methods that an endpoint's snapshot declares, by their names."""


class MethodTable:
    """Finds rows: those of the protocol, then those that an endpoint's snapshot declares."""

    def __init__(self, rows: Iterable[Method], declared: Declared = lambda _endpoint: MappingProxyType({})) -> None:
        self._rows: dict[tuple[str, str], Method] = {(each, row.name): row for row in rows for each in row.revisions}
        self._declared = declared

    def find(self, endpoint: str, name: str, revision: str) -> Method | None:
        """Return the row of a method; None where the revision has none of this name."""
        row = self._rows.get((revision, name))
        if row is None:
            row = self._declared(endpoint).get(name)
            return row if row is not None and revision in row.revisions else None
        return row


def protocol_methods(
    lists: Lists,
    invoker: Invoker,
    listen: ListenStreams,
    tasks: TaskMethods,
    sessions: SessionMethods,
    *,
    skills: SkillMethods,
) -> tuple[Method, ...]:
    """Return the rows of the protocol's own methods."""
    tools, prompts = _has("tools"), _has("prompts")
    resources, completions = _has("resources"), _has("completions")
    page = schema.list_page
    return (
        Method("server/discover", schema.no_parameters, lists.discover, admits=False),
        Method("tools/list", page, lists.answer, EVERY, tools, is_limited=True),
        Method("tools/call", schema.call_tool, invoker.call_tool, EVERY, tools, names="name", audit=_tool),
        Method("prompts/list", page, lists.answer, EVERY, prompts, is_limited=True),
        Method("prompts/get", schema.get_prompt, invoker.get_prompt, EVERY, prompts, names="name", audit=_prompt),
        Method("resources/list", page, lists.answer, EVERY, resources, is_limited=True),
        Method("resources/templates/list", page, lists.answer, EVERY, resources, is_limited=True),
        Method(
            "resources/read",
            schema.read_resource,
            invoker.read_resource,
            EVERY,
            resources,
            names="uri",
            audit=_resource,
        ),
        Method("completion/complete", schema.complete, invoker.complete, EVERY, completions),
        Method("subscriptions/listen", schema.listen, listen.answer),
        Method("tasks/get", schema.task, tasks.get, is_offered=takes_tasks, names="taskId"),
        Method(
            "tasks/update", schema.update_task, tasks.update, is_offered=takes_tasks, names="taskId", audit=no_target
        ),
        Method("tasks/cancel", schema.task, tasks.cancel, is_offered=takes_tasks, names="taskId", audit=no_target),
        Method("skills/list", page, skills.list, is_offered=has_skills, is_limited=True),
        Method("skills/get", schema.watched_uri, skills.get, is_offered=has_skills),
        Method("resources/directory/read", schema.directory_page, skills.read_directory, is_offered=has_skills),
        # The revisions of 2025 alone.
        Method("initialize", schema.no_parameters, sessions.initialize, SESSION_ERA, begins_session=True),
        Method("ping", schema.no_parameters, sessions.ping, SESSION_ERA),
        Method(
            "resources/subscribe", schema.watched_uri, sessions.subscribe, SESSION_ERA, resources, needs_session=True
        ),
        Method(
            "resources/unsubscribe",
            schema.watched_uri,
            sessions.unsubscribe,
            SESSION_ERA,
            resources,
            needs_session=True,
        ),
        Method(
            "logging/setLevel", schema.log_level, sessions.set_level, SESSION_ERA, _has("logging"), needs_session=True
        ),
    )


def _has(capability: str) -> Callable[[Exchange], bool]:
    """Return a check that the endpoint has a capability, as the caller sees it."""
    return lambda exchange: capability in exchange.view.capabilities


def _tool(exchange: Exchange) -> Target | None:
    name = exchange.params.get("name")
    return exchange.view.find("tool", name) if isinstance(name, str) else None


def _prompt(exchange: Exchange) -> Target | None:
    name = exchange.params.get("name")
    return exchange.view.find("prompt", name) if isinstance(name, str) else None


def _resource(exchange: Exchange) -> Target | None:
    uri = exchange.params.get("uri")
    return exchange.view.find_resource(uri) if isinstance(uri, str) else None
