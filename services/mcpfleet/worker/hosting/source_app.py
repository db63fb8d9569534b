"""Sources as one application, before a worker serves it. Settings that no worker supports yet are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcpfleet.bus.bus import Bus
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import Process
from mcpfleet.sources.source import Isolation, OpenApi, Source, Url
from mcpfleet.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from mcpfleet.worker.hosting.served_sources import ServedSources

_BUILT: Final[tuple[Isolation, ...]] = ("shared", "caller", "call")


@dataclass(frozen=True, slots=True)
class SourceApp:
    """Sources that workers serve as one application."""

    name: str
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        """Refuse what cannot be served.

        Raises:
            ConfigurationError: there is no source, two have one name, or one asks for what is not built yet.
        """
        if not self.sources:
            raise ConfigurationError(f"{self.name}: there is no source to serve")
        names = [source.name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"{self.name}: two sources have the name {name!r}")
        for source in self.sources:
            check_built(source)

    def served_by(self, process: Process[WorkerSettings], bus: Bus, pool: str) -> ServedSources:
        """Return the sources as one worker of a pool serves them; called on the bus's loop."""
        # The SDK takes 0.6 s, and others need none of it.
        from mcpfleet.worker.hosting.places import places_of  # noqa: PLC0415
        from mcpfleet.worker.hosting.served_sources import ServedSources  # noqa: PLC0415

        return ServedSources(self.name, self.sources, process, places_of(bus, pool, process.log))


def source_app_of(target: str, environment: Mapping[str, str]) -> SourceApp:
    """Read the one source that a worker's target names, such as `fleet.toml:memory`; its pool has its name.

    Raises:
        ConfigurationError: the configuration has a mistake, or the target names several sources.
    """
    from mcpfleet.sources.target import SourceTarget  # noqa: PLC0415  # workers of an App need none of it

    named = SourceTarget(targets=(target,))
    sources = named.read(environment).sources
    if len(sources) > 1:
        names = ", ".join(source.name for source in sources)
        raise ConfigurationError(
            f"{target}: has the sources {names}, and a worker serves one: write {target}:{sources[0].name}"
        )
    return SourceApp(named.name(sources), sources)


def check_built(source: Source) -> None:
    """Refuse settings that no worker supports yet.

    Raises:
        ConfigurationError: the sentence names the source, the setting and what can be written instead.
    """
    where = f"{source.place}: " if source.place else ""
    if isinstance(source.way, OpenApi):
        raise ConfigurationError(
            f"{where}the source {source.name!r} is an OpenAPI document, and workers serve only commands, URLs and "
            "Python objects yet"
        )
    if isinstance(source.way, Url) and (source.way.auth or {}).get("kind") == "exchange":
        raise ConfigurationError(
            f"{where}the source {source.name!r} has auth of the kind 'exchange', and nothing exchanges tokens yet: "
            "write a credential of the source's own, such as the kind 'client_credentials'"
        )
    if source.shared_by not in _BUILT:
        raise ConfigurationError(
            f"{where}the source {source.name!r} has the isolation {source.isolation!r}, and workers do not know it "
            'yet: write isolation = "caller" for a process for each caller, or isolation = "call"'
        )
    if source.asks:
        raise ConfigurationError(
            f"{where}the source {source.name!r} may ask clients for {', '.join(source.asks)}, and no worker passes "
            "questions on yet: write asks = []"
        )
    for name, tool in source.tools.items():
        for setting in ("asks", "era"):
            if getattr(tool, setting):
                raise ConfigurationError(
                    f"{where}the source {source.name!r}, tools.{name}.{setting}: no worker does this yet: leave it out"
                )
