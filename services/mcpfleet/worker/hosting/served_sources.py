"""Sources as a worker serves them: they stand in for an App."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

from mcpfleet.app.hosts import Hosts, Watcher
from mcpfleet.app.lifespan import LifespanFunction, Lifespans, Scope
from mcpfleet.app.localized import SOURCE, Localizer
from mcpfleet.contracts.hints import BadUri
from mcpfleet.contracts.manifest import Manifest, digest_of
from mcpfleet.process.run import Process
from mcpfleet.sources.overlay import Overlaid, together
from mcpfleet.sources.source import Source
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.handler import HostedHandler
from mcpfleet.worker.hosting.places import Places
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor
from mcpfleet.worker.settings import WorkerSettings

_LONGER: Final = 10.0
"""Seconds beyond the longest start of a source in which all of them must have been tried."""
_LEAVE_WITHIN: Final = 10.0
"""Seconds in which the children end, after the last call."""
_UNLISTED: Final = "0"
"""The version that is announced while no source has told its own."""


class ServedSources:
    """The sources of one worker, in the place of an App."""

    interceptors = observers = file_sources = permitters = ()
    clean = None
    """Results are passed on as they are (B2)."""

    def __init__(self, name: str, sources: Sequence[Source], process: Process[WorkerSettings], places: Places) -> None:
        self.name = name
        self.hosts = Hosts()
        self._handlers: list[HostedHandler] = []
        """Replaced as a whole, since the bus's loop reads it."""
        self._told: set[str] = set()
        self.watchers = (Watcher(self._watch),)
        self._reaping = Reaping()
        self._process = process
        self._places = places
        self._sources = [self._supervisor(source) for source in sources]

    def _supervisor(self, source: Source) -> SourceSupervisor:
        def tell(is_there: bool, why: str) -> None:
            self._process.health.set(f"source {source.name}", is_there, why)

        return SourceSupervisor(
            source,
            self._reaping,
            log=self._process.log,
            tell_health=tell,
            on_change=self._take,
            on_update=self._publish,
            places=self._places,
        )

    def _publish(self, uri: str) -> None:
        with suppress(BadUri):  # nobody can watch such a one
            self.hosts.publish(uri)

    async def _watch(self, uris: frozenset[str]) -> None:
        """Have each source tell of changes of its resources that clients watch; on the handlers' loop."""
        for source in self._sources:
            source.watch(uris)

    @property
    def handlers(self) -> list[HostedHandler]:
        """The declarations of all sources, by kind and name."""
        return self._handlers

    def _take(self) -> None:
        """Take what the sources offer now; on the handlers' loop."""
        offering = [source for source in self._sources if source.listing is not None and source.handlers]
        merged = together([source.listing.overlaid for source in offering if source.listing is not None])
        served = {id(each) for each in merged.offers}
        handlers = [each for source in offering for each in source.handlers if id(each.offer) in served]
        self._handlers = sorted(handlers, key=lambda each: (each.definition.kind, each.definition.name))
        self._tell(merged)
        self.hosts.changed()

    def _tell(self, merged: Overlaid) -> None:
        """Log what is left out, and what has no effect, once each (B25)."""
        log = self._process.log
        for each in merged.left_out:
            if not each.is_wanted and str(each) not in self._told:
                log.warning("not served", source=each.source, kind=each.kind, name=each.name, why=each.why)
        for note in merged.notes:
            if note not in self._told:
                log.warning("source noted", note=note)
        self._told = {*map(str, merged.left_out), *merged.notes}

    @property
    def logs(self) -> bool:
        """Whether clients may ask for log messages: no source's message can be told to belong to a call yet."""
        return False

    def check_documents(self) -> None:
        """Do nothing: a source's resources are its own."""

    def manifest(self) -> Manifest:
        """Return what a worker announces: a single source's own name and texts, or those of all."""
        texts = tuple(each.definition.text for each in self.handlers)
        told = [source.listing.facts for source in self._sources if source.listing is not None]
        if len(self._sources) == 1 and told:
            return Manifest(
                definitions=texts, logs=self.logs, **_server(self.name, told[0].server, told[0].instructions)
            )
        instructions = "\n\n".join(facts.instructions for facts in told if facts.instructions)
        version = digest_of("\n".join(source.source.digest for source in self._sources).encode())[:8]
        return Manifest(
            name=self.name, version=version, instructions=instructions or None, definitions=texts, logs=self.logs
        )

    def texts(self, language: str | None = None) -> Localizer:
        """Return what translates nothing: a source has its own texts."""
        del language
        return SOURCE

    def lifespans(self) -> Lifespans:
        """Return the one lifespan, which holds the sources: entered once each was listed, or could not be started."""
        within = max(source.source.start_within for source in self._sources) * 2 + _LONGER
        function = LifespanFunction(self._run)
        return Lifespans([(Scope(), function)], self, enter_within=within, leave_within=_LEAVE_WITHIN)

    async def _run(self) -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as around:
                around.start_soon(self._places.run)
                async with anyio.create_task_group() as tasks:
                    for source in self._sources:
                        tasks.start_soon(source.run)
                    for source in self._sources:
                        await source.has_tried.wait()
                    yield
                    tasks.cancel_scope.cancel()
                around.cancel_scope.cancel()  # places are freed once their connections are over
        finally:
            with anyio.CancelScope(shield=True):
                await self._reaping.close()


def _server(name: str, server: dict[str, Any], instructions: str | None) -> dict[str, Any]:
    """Return a source's own description, as far as it has the form of ours."""
    described: dict[str, Any] = {
        "name": _text(server.get("name")) or name,
        "version": _text(server.get("version")) or _UNLISTED,
        "title": _text(server.get("title")),
        "description": _text(server.get("description")),
        "website_url": _text(server.get("websiteUrl")),
        "instructions": instructions,
    }
    icons = server.get("icons")
    if isinstance(icons, list) and all(isinstance(each, dict) for each in icons):
        described["icons"] = tuple(icons)
    return described


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
