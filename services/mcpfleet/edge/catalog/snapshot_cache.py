"""Keeps each endpoint's newest snapshot and its views. Hints, use and a timer cause new fetches."""

from __future__ import annotations

import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import anyio
from anyio.abc import TaskGroup
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.actor import hint_span
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.access import is_exposed
from mcpfleet.contracts.apps import Audience
from mcpfleet.contracts.catalog import CatalogClient, Snapshot, hint_subject
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.policy import PolicyClient
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.catalog.languages import LanguageFiles
from mcpfleet.edge.catalog.visibility import Visibility
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.lifecycle import STARTING_FOR
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.languages import OfferedLanguages
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.view import View, view_of
from mcpfleet.wire.errors import NotAnswered
from mcpfleet.wire.protocol import LEGACY

_HINT: Final = hint_subject("{endpoint}")
UNENFORCED: Final = "scopes are not enforced"
REFUSED: Final = "definitions refused: scopes are not enforced"
_LONGEST_LISTING: Final = 500
"""Characters of names in one line of the log."""
_LEARNED_AT_ONCE: Final = 16
"""Groups about which the policy is asked at once in the background."""
_LEARNED_AGAIN: Final = 1.0
"""Seconds before these are asked about again where there was no answer."""
_MOST_VIEWS: Final = 256
"""Views of one snapshot that are kept; the least recently used one goes first (X37)."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    snapshot: Snapshot | None = None
    tools: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    confirmed: float = -math.inf
    """When the catalog last confirmed the snapshot as the newest (monotonic seconds)."""
    wanted: int = 0
    """The highest number in a hint."""
    is_fetching: bool = False
    cause: TraceContext | None = None
    """The trace of the change that the newest hint reports, until the catalog is asked for it."""
    tasks: bool = True
    policy: Policy | None = None
    languages: OfferedLanguages | None = None
    unenforced: frozenset[str] = frozenset()
    """The definitions with scopes that the log has named, where no caller is identified."""
    views: OrderedDict[Rights, View] = field(default_factory=OrderedDict)

    def make_view(self, rights: Rights) -> View:
        """Make the view of callers with these rights, and keep it."""
        assert self.snapshot is not None
        assert self.policy is not None
        neutral = rights._replace(language=None)
        view = self.views.get(neutral)
        if view is None:
            view = view_of(self.snapshot, self.policy, neutral, tasks=self.tasks)
            if self.languages is not None:
                view = view.in_language(None, self.languages)
            self.views[neutral] = view
        if rights.language is not None and self.languages is not None:
            view = self.views[rights] = view.in_language(rights.language, self.languages)
        while len(self.views) > _MOST_VIEWS:
            self.views.popitem(last=False)
        return view


def _has_tasks(settings: EdgeSettings, name: str) -> bool:
    return name not in settings.endpoints or settings.endpoints[name].tasks


class Snapshots:
    """The snapshots of this edge's endpoints. Their numbers never go back."""

    def __init__(
        self,
        bus: Bus,
        client: CatalogClient,
        endpoints: Iterable[str],
        *,
        settings: EdgeSettings,
        tracer: Tracer,
        log: FilteringBoundLogger,
        visibility: Visibility | None = None,
    ) -> None:
        self._bus = bus
        self._client = client
        self._settings = settings
        self._tracer = tracer
        self._log = log
        self._visibility = visibility or Visibility(PolicyClient(bus), log=log)
        self._languages = LanguageFiles(FilesClient(bus), settings.file_room, log=log)
        self._wanted: dict[tuple[str, str], None] = {}
        """The endpoints and groups whose items are to be learned in the background."""
        self._is_learning = False
        self._endpoints = {name: _Endpoint(tasks=_has_tasks(settings, name)) for name in endpoints}
        self._early_until = time.monotonic() + STARTING_FOR
        self._known = anyio.Event()
        self._listeners: list[Callable[[str], None]] = []
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take hints and compare numbers, until cancelled."""
        for name in self._endpoints:
            await self._bus.subscribe(hint_subject(name), self._on_hint)
        self._bus.on_link(self._on_link)
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            self._on_link(self._bus.is_up)
            while True:
                await anyio.sleep(self._settings.heal_interval * random.uniform(0.75, 1.25))  # noqa: S311
                for name in self._endpoints:
                    self._refresh(name)

    async def wait_known(self) -> None:
        """Wait until an endpoint has a snapshot: some application has announced itself."""
        await self._known.wait()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call a listener with the name of each endpoint that has a new snapshot."""
        self._listeners.append(listener)

    def newest(self, endpoint: str) -> Snapshot | None:
        """Return an endpoint's newest snapshot; None before the first."""
        return self._endpoints[endpoint].snapshot

    def has_tool(self, endpoint: str, name: str) -> bool:
        """Return whether the endpoint offers a tool of this name to any caller."""
        return name in self._endpoints[endpoint].tools

    def scopes(self, endpoint: str) -> frozenset[str]:
        """Return the scopes of an endpoint's definitions, without definitions for some callers only (D10)."""
        return self._endpoints[endpoint].scopes

    def has_several_languages(self, endpoint: str) -> bool:
        """Return whether texts of the endpoint may be shown in several languages."""
        languages = self._endpoints[endpoint].languages
        return languages is not None and languages.are_several

    def view(
        self,
        name: str,
        principal: Principal,
        revision: str | None = None,
        *,
        has_apps: bool = False,
        preference: str | None = None,
    ) -> View | None:
        """Return a principal's view of an endpoint, without waiting; None before the first snapshot.

        A revision leaves out what its requests do not have; without one, nothing is left out for it (X61). `has_apps`
        says that the client shows documents (X12). A preference chooses the language of what is shown; without one, it
        is the default (X30).

        A snapshot in use is confirmed in the background once it is older than `snapshot_lasts`, so that no call waits
        for the catalog.
        """
        endpoint = self._endpoints[name]
        if time.monotonic() - endpoint.confirmed > self._settings.snapshot_lasts or endpoint.snapshot is None:
            self._refresh(name)
        if endpoint.snapshot is None or endpoint.policy is None:
            return None
        visible = None
        if principal.group is not None:
            visible = self._visibility.get(name, endpoint.snapshot.number, principal.group)
            if visible is None:
                self._want(name, principal.group)
                return None
        audience = self._audience(name, revision, has_apps=has_apps)
        language = endpoint.languages.choose(preference) if endpoint.languages is not None else None
        rights = endpoint.policy.rights(principal, revision, visible, audience, language)
        view = endpoint.views.get(rights)
        if view is None:
            return endpoint.make_view(rights)
        endpoint.views.move_to_end(rights)
        return view

    def _audience(self, name: str, revision: str | None, *, has_apps: bool) -> Audience:
        """Return the kind of a client; one of 2025 has Apps only where the endpoint says so (X16)."""
        if revision in LEGACY and name in self._settings.endpoints and not self._settings.endpoints[name].apps_2025:
            return Audience.WITHOUT_UI
        return Audience.WITH_APPS if has_apps else Audience.WITHOUT_APPS

    async def prepare(self, name: str, principal: Principal) -> None:
        """Learn what the operator's policy shows a caller's group; afterwards `view` knows it (X48).

        Raises:
            NotAnswered: authorization did not say so in time.
        """
        endpoint = self._endpoints[name]
        if principal.group is None or endpoint.snapshot is None:
            return
        if self._visibility.get(name, endpoint.snapshot.number, principal.group) is None:
            await self._visibility.learn(endpoint.snapshot, principal.group)

    def policy_changed(self, number: int) -> None:
        """Forget what groups see: the operator's policy may show something else from a revocation's number on."""
        self._visibility.policy_changed(number)

    def _want(self, name: str, group: str) -> None:
        """Learn in the background what a group sees of the newest snapshot, for streams."""
        self._wanted[name, group] = None
        if not self._is_learning and self._tasks is not None:
            self._is_learning = True
            self._tasks.start_soon(self._learn)

    async def _learn(self) -> None:
        """Learn what was wanted, some groups at once, and tell listeners of their endpoints' views."""
        try:
            while self._wanted:
                some = list(islice(self._wanted, _LEARNED_AT_ONCE))
                learned: set[str] = set()
                async with anyio.create_task_group() as tasks:
                    for name, group in some:
                        tasks.start_soon(self._learn_one, name, group, learned)
                for name in learned:
                    for listener in self._listeners:
                        listener(name)
                if not learned:  # authorization is away
                    await anyio.sleep(_LEARNED_AGAIN)
        finally:
            self._is_learning = False

    async def _learn_one(self, name: str, group: str, learned: set[str]) -> None:
        snapshot = self._endpoints[name].snapshot
        with suppress(NotAnswered):
            if snapshot is not None:
                await self._visibility.learn(snapshot, group)
            self._wanted.pop((name, group), None)
            learned.add(name)

    def _on_hint(self, message: Incoming) -> None:
        name = message.subject.rpartition(".")[2]
        endpoint = self._endpoints.get(name)
        if endpoint is None or not message.body.isdigit():
            return
        endpoint.wanted = max(endpoint.wanted, int(message.body[:18]))
        sent = header.read(message.header)
        if sent is not None and (endpoint.snapshot is None or endpoint.snapshot.number < endpoint.wanted):
            endpoint.cause = sent.trace
        self._refresh(name)

    def _on_link(self, is_up: bool) -> None:
        """Compare numbers after a gap, since hints may have been missed."""
        if is_up:
            for name in self._endpoints:
                self._refresh(name)

    def _refresh(self, name: str) -> None:
        endpoint = self._endpoints[name]
        if self._tasks is None or endpoint.is_fetching:
            return
        endpoint.is_fetching = True
        self._tasks.start_soon(self._fetch, name, endpoint)

    async def _fetch(self, name: str, endpoint: _Endpoint) -> None:
        """Ask until the snapshot of the newest hint has arrived, at most three times; later the timer asks again."""
        try:
            for _ in range(3):
                number = endpoint.snapshot.number if endpoint.snapshot else None
                with self._span(name, endpoint):
                    answer = await self._client.snapshot(name, number)
                    if answer.snapshot is not None:
                        self._take(endpoint, answer.snapshot, await self._languages.offered(answer.snapshot))
                endpoint.confirmed = time.monotonic()
                if answer.number >= endpoint.wanted:
                    return
        except BusError as error:
            # The edge serves the snapshot that it has, and asks again after a pause.
            endpoint.confirmed = time.monotonic() - self._settings.snapshot_lasts / 2
            is_early = isinstance(error, NoResponders) and time.monotonic() < self._early_until
            tell = self._log.info if is_early and endpoint.snapshot is None else self._log.warning
            tell("snapshot not fetched", endpoint=name, error=str(error))
        finally:
            endpoint.is_fetching = False
            endpoint.cause = None

    def _span(self, name: str, endpoint: _Endpoint) -> AbstractContextManager[object]:
        """Return the span of fetching a hint's snapshot and telling streams; an empty one where nothing is recorded."""
        cause, endpoint.cause = endpoint.cause, None
        return hint_span(self._tracer, _HINT, lambda: hint_subject(name), cause)

    def _take(self, endpoint: _Endpoint, snapshot: Snapshot, languages: OfferedLanguages | None = None) -> None:
        if endpoint.snapshot is not None and snapshot.number <= endpoint.snapshot.number:
            return
        if self._settings.authorization == "none":
            snapshot = self._enforceable(endpoint, snapshot)
        endpoint.snapshot = snapshot
        endpoint.tools = frozenset(each.definition.name for each in snapshot.listed if each.definition.kind == "tool")
        public = (each.definition for each in snapshot.every if not each.definition.only_for)
        endpoint.scopes = frozenset(scope for definition in public for scope in definition.named_scopes)
        endpoint.policy = Policy.of(snapshot, hides_uncovered=self._settings.hide_uncovered)
        endpoint.languages = languages
        endpoint.views = OrderedDict()
        self._known.set()
        self._log.info(
            "snapshot taken", endpoint=snapshot.endpoint, number=snapshot.number, definitions=len(snapshot.every)
        )
        for listener in self._listeners:
            listener(snapshot.endpoint)

    def _enforceable(self, endpoint: _Endpoint, snapshot: Snapshot) -> Snapshot:
        """Look at scopes that nobody enforces: leave their definitions out where strangers may call, else warn."""
        scoped = [each.definition for each in snapshot.every if each.definition.named_scopes]
        told, endpoint.unenforced = endpoint.unenforced, frozenset(each.name for each in scoped)
        is_refused = is_exposed(self._settings.bind, self._settings.public_names)
        if scoped and endpoint.unenforced - told:
            names = ", ".join(sorted(endpoint.unenforced))[:_LONGEST_LISTING]
            say, event = (self._log.error, REFUSED) if is_refused else (self._log.warning, UNENFORCED)
            say(event, endpoint=snapshot.endpoint, definitions=names, why="MCPFLEET_AUTHORIZATION is none")
        if not scoped or not is_refused:
            return snapshot
        return snapshot.model_copy(
            update={
                "listed": tuple(each for each in snapshot.listed if not each.definition.named_scopes),
                "extensions": tuple(each for each in snapshot.extensions if not each.definition.named_scopes),
            }
        )
