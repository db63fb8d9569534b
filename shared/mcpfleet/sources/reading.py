"""Reads the sources of a file: entries of clients' files, our own tables, and what these change of those."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mcpfleet.contracts.endpoints import EVERY_POOL, Endpoint
from mcpfleet.contracts.manifest import pool_named
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.client_files import OWN_SECTION, Entry, entries_of, expansion_of, read_entry
from mcpfleet.sources.config_file import ConfigFile, Keys, meant
from mcpfleet.sources.expansion import Expansion, literal_secrets
from mcpfleet.sources.json_file import read_json
from mcpfleet.sources.source import Source
from mcpfleet.sources.tables import RENAMED, WAYS, SourceTable
from mcpfleet.sources.toml_file import read_toml

_OWN: Final = ("include", "endpoints", "sources")
"""The members of fleet.toml, and of `"mcpfleet"` in JSON without the first."""
MOST_SOURCES: Final = 200
"""Sources of a file with all that it includes."""


@dataclass(frozen=True)
class Note:
    """Something about a file that somebody should know, though it is no mistake."""

    place: str
    text: str
    source: str | None = None
    """The source that is left out for it."""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class Configuration:
    """The sources and endpoints that a target describes.

    Attributes:
        sources: in the file's order.
        endpoints: by name, with the pools of their sources; empty for the one that every fleet has.
        notes: what is left out, what has no effect, what should be written otherwise.
        files: that were read, included ones too.
    """

    sources: tuple[Source, ...]
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class _Described:
    """A source before it is read: its entry or its table, and the table that refines it."""

    name: str
    table: SourceTable
    is_own: bool
    """It has a table of ours, and no entry of a client's file."""
    entry: Entry | None = None
    refined: SourceTable | None = None


def read_configuration(file: Path, environment: Mapping[str, str], only: Collection[str] = ()) -> Configuration:
    """Read a file: `fleet.toml`, or JSON with `mcpServers` or `servers`.

    Args:
        file: its path; the extension tells the format.
        environment: the variables that it may name.
        only: the sources that are wanted, by name; all without one. Nothing of others is expanded.

    Raises:
        ConfigurationError: something is wrong; each problem names the file and the line.
    """
    reader = _Reader(environment)
    reader.read(file)
    chosen = reader.chosen(only)
    problems: list[str] = []
    sources: list[Source] = []
    for described in chosen:
        try:
            sources.append(reader.source(described))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    return Configuration(tuple(sources), reader.endpoints(only), tuple(reader.notes), tuple(reader.files))


class _Reader:
    """Gathers what a file and all that it includes describe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._described: dict[str, _Described] = {}
        self._left_out: set[str] = set()
        self._endpoints: dict[str, tuple[ConfigFile, Keys, Any]] = {}
        self.files: list[Path] = []
        self.notes: list[Note] = []

    def read(self, path: Path, included_by: tuple[ConfigFile, Keys] | None = None) -> None:
        """Gather the entries and tables of a file, after those of the files that it includes."""
        if path.resolve() in self.files:
            assert included_by is not None
            raise included_by[0].fault(included_by[1], f"{path} is read already")
        self.files.append(path.resolve())
        if path.suffix == ".toml":
            self._read_own(read_toml(path), (), included_by)
            return
        file = read_json(path)
        expansion = expansion_of(file, self._environment)
        for name, keys, raw in entries_of(file):
            self._add_entry(file, expansion, name, keys, raw)
        own = file.value.get(OWN_SECTION)
        if own is not None:
            self._read_own(file, (OWN_SECTION,), included_by)

    def _read_own(self, file: ConfigFile, keys: Keys, included_by: object) -> None:
        own = file.table(keys, file.value[OWN_SECTION] if keys else file.value)
        known = _OWN[1:] if keys else _OWN
        for name in own:
            if name not in known:
                raise file.fault((*keys, name), f"no such member: {meant(name, known)}")
        for at, each in enumerate(file.texts(("include",), own.get("include", []))):
            if included_by is not None:
                raise file.fault(("include", at), "an included file includes no further ones")
            self.read(file.path.parent / each, (file, ("include", at)))
        expansion = Expansion(file, self._environment)
        for name, raw in file.table((*keys, "sources"), own.get("sources", {})).items():
            self._add_table(SourceTable(file, (*keys, "sources", name), raw, expansion), name)
        for name, raw in file.table((*keys, "endpoints"), own.get("endpoints", {})).items():
            place = (*keys, "endpoints", name)
            if name in self._endpoints:
                raise file.fault(place, f"{self._endpoints[name][0].path} describes this endpoint too")
            self._endpoints[name] = file, place, raw

    def _add_entry(self, file: ConfigFile, expansion: Expansion, name: str, keys: Keys, raw: Any) -> None:
        entry = read_entry(file, keys, raw)
        source = pool_named(name)
        self.notes += [Note(file.place(at), f"{'.'.join(map(str, at))}: {why}") for at, why in entry.notes]
        self._refuse_second(file, keys, source)
        if entry.left_out is not None:
            self._left_out.add(source)
            self.notes.append(Note(file.place(keys), f"{source} is left out: {entry.left_out}", source))
            return
        table = SourceTable(file, keys, dict(entry.members), expansion)
        self._described[source] = _Described(source, table, is_own=False, entry=entry)

    def _add_table(self, table: SourceTable, name: str) -> None:
        table.check_members("disabled")
        source = pool_named(name)
        if source != name:
            raise table.file.fault(table.keys, f"the name has other characters than a-z, 0-9 and -: write {source}")
        if table.raw.get("disabled") is True:
            self._described.pop(source, None)
            self._left_out.add(source)
            self.notes.append(Note(table.file.place(table.keys), f"{source} is left out: it is disabled", source))
            return
        for group, key in literal_secrets(table.raw):
            place = table.file.place((*table.keys, group, key))
            self.notes.append(Note(place, f'{key}: the secret stands in the file: write {{ env = "NAME" }}'))
        before = self._described.get(source)
        if table.way_names:
            self._refuse_second(table.file, table.keys, source)
            self._described[source] = _Described(source, table, is_own=True)
        elif before is not None and before.refined is None and not before.is_own:
            self._described[source] = replace(before, refined=table)
        elif source not in self._left_out:
            raise table.file.fault(
                table.keys, f"no included file has this source, and the table has none of {', '.join(WAYS)}"
            )

    def _refuse_second(self, file: ConfigFile, keys: Keys, source: str) -> None:
        if source in self._described:
            first = self._described[source].table
            raise file.fault(keys, f"a source {source!r} is described at {first.file.place(first.keys)} too")
        if len(self._described) >= MOST_SOURCES:
            raise file.fault(keys, f"there are over {MOST_SOURCES} sources")

    def chosen(self, only: Collection[str]) -> Iterator[_Described]:
        """Yield the wanted sources.

        Raises:
            ConfigurationError: one of the names is unknown.
        """
        for name in only:
            if name in self._left_out:
                raise ConfigurationError(*(str(note) for note in self.notes if note.source == name))
            if name not in self._described:
                raise ConfigurationError(f"no source {name!r}: {meant(name, self._described)}")
        yield from (each for name, each in self._described.items() if not only or name in only)

    def source(self, described: _Described) -> Source:
        """Read a source.

        Raises:
            ConfigurationError: something in it is wrong.
        """
        table, refined = described.table, described.refined
        settings: dict[str, Any] = {"prefix": f"{described.name}_"}
        if described.entry is not None and described.entry.timeout is not None:
            settings["timeout"] = described.entry.timeout
        if described.is_own:
            settings |= table.settings()
        way, by = table.way(), table
        if refined is not None:
            way, by = refined.refine(way), refined
            settings |= refined.settings()
        place = table.file.place(table.keys)
        members = {"name": described.name, "way": way, "place": place, **settings}
        return by.file.validated(Source, by.keys, members, RENAMED)

    def endpoints(self, only: Collection[str]) -> dict[str, Endpoint]:
        """Return the endpoints, each with the pools of its sources.

        Raises:
            ConfigurationError: a member is wrong, or a source is unknown.
        """
        made: dict[str, Endpoint] = {}
        for name, (file, keys, raw) in self._endpoints.items():
            members = dict(file.table(keys, raw))
            sources = members.pop("sources", [EVERY_POOL])
            for at, each in enumerate(file.texts((*keys, "sources"), sources)):
                if each != EVERY_POOL and each not in self._described.keys() | self._left_out:
                    raise file.fault((*keys, "sources", at), f"no source {each!r}: {meant(each, self._described)}")
            if "pools" in members:
                raise file.fault((*keys, "pools"), "no such member: write sources")
            pools = [each for each in sources if each == EVERY_POOL or not only or each in only]
            members = {"path": f"/{name}", **members, "pools": tuple(pools)}
            made[name] = file.validated(Endpoint, keys, members, {"pools": "sources"})
        return made
