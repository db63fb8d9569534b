"""The targets of commands that are no App: files of sources, URLs, OpenAPI documents, or a command itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from mcpfleet.contracts.manifest import pool_named
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.names import FILE, OPENAPI, PYTHON_FILE, name_of
from mcpfleet.sources.reading import Configuration, read_configuration
from mcpfleet.sources.source import Command, Isolation, Object, OpenApi, Source, Url


class SourceTarget(BaseModel):
    """The sources that a command line names; processes hand it on as it is, and each reads the files itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: tuple[str, ...] = ()
    """`fleet.toml`, `.mcp.json:memory`, `server.py:mcp`, `https://…/mcp`, `openapi:FILE`."""
    command: tuple[str, ...] = ()
    """The words behind `--`; nothing in them is expanded."""
    only: tuple[str, ...] = ()
    """The wanted sources of files; empty for all."""
    isolation: Isolation | None = None
    """For sources that say nothing of it."""
    python: str | None = None
    """The interpreter for Python files among the targets."""

    @property
    def text(self) -> str:
        """The words that were typed, for people."""
        return " ".join([*self.targets, *(["--", *self.command] if self.command else [])])

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names; those that they include are not among them."""
        found = (FILE.fullmatch(each) or PYTHON_FILE.fullmatch(each) for each in self.targets)
        return tuple(each["file"] for each in found if each is not None)

    def read(self, environment: Mapping[str, str]) -> Configuration:
        """Read the files, and return all sources.

        Raises:
            ConfigurationError: a file has a mistake, two sources have one name, or nothing is left to serve.
        """
        parts = [self._part(each, environment) for each in self.targets]
        if self.command:
            name = name_of(self.command)
            parts.append(Configuration((Source(name=name, way=Command(words=self.command)),)))
        sources = tuple(self._completed(source) for part in parts for source in part.sources)
        seen: dict[str, Source] = {}
        for source in sources:
            if seen.setdefault(source.name, source) is not source:
                places = " and ".join(each.place or "the command line" for each in (seen[source.name], source))
                raise ConfigurationError(f"two sources have the name {source.name!r}: {places}")
        notes = tuple(note for part in parts for note in part.notes)
        if not sources:
            why = (f": {'; '.join(map(str, notes))}") if notes else ""
            raise ConfigurationError(f"{self.text}: there is no source to serve{why}")
        endpoints: dict[str, Any] = {name: each for part in parts for name, each in part.endpoints.items()}
        files = tuple(file for part in parts for file in part.files)
        return Configuration(sources, endpoints, notes, files)

    def name(self, sources: tuple[Source, ...]) -> str:
        """Return the name of the pool that serves all of them: the only source's, or that of the file's folder."""
        if len(sources) == 1:
            return sources[0].name
        return pool_named(Path(self.files[0] if self.files else "fleet.toml").resolve().parent.name)

    def _completed(self, source: Source) -> Source:
        if source.isolation is not None or self.isolation is None:
            return source
        return source.model_copy(update={"isolation": self.isolation})

    def _part(self, target: str, environment: Mapping[str, str]) -> Configuration:
        if target.startswith(OPENAPI):
            document = target.removeprefix(OPENAPI)
            name = pool_named(PurePath(urlsplit(document).path).stem)
            return Configuration((Source(name=name, way=OpenApi(document=document)),))
        if target.startswith(("http://", "https://")):
            host = urlsplit(target).netloc.rpartition("@")[2]  # a name shows no password
            return Configuration((Source(name=pool_named(host), way=Url(url=target)),))
        if (server := PYTHON_FILE.fullmatch(target)) is not None:
            return self._server(target, Path(server["file"]).resolve(), server["name"])
        found = FILE.fullmatch(target)
        if found is None:
            raise ConfigurationError(
                f"{target}: is no file of servers (.toml, .json or .py), URL or {OPENAPI}FILE; an App is served alone"
            )
        only = self.only if found["name"] is None else (found["name"],)
        read = read_configuration(Path(found["file"]), environment, only)
        if found["name"] is None:
            return read
        return replace(read, endpoints={})  # they are the fleet's, not one source's

    def _server(self, target: str, file: Path, name: str | None) -> Configuration:
        if not file.is_file():
            raise ConfigurationError(f"{target}: the file does not exist")
        way = Object(target=f"{file}:{name}" if name else str(file), python=self.python)
        return Configuration((Source(name=pool_named(file.stem), way=way),))
