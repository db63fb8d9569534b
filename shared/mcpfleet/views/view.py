"""One caller's view of an endpoint's snapshot: its lists, and the meaning of names."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.contracts.apps import APPS_EXTENSION, Audience, has_ui, is_ui
from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import OWN_KINDS, Definition, FileRef, Kind
from mcpfleet.contracts.skills import SKILLS_EXTENSION
from mcpfleet.views.apps import entry
from mcpfleet.views.languages import OfferedLanguages, Translation
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.skills import SkillIndex, without_incomplete
from mcpfleet.wire.filter import ListKind
from mcpfleet.wire.mirror import Mirrored, mirrored
from mcpfleet.wire.protocol import TASKS_EXTENSION
from mcpfleet.wire.reply import result_body, server_info
from mcpfleet.wire.uri_template import UriTemplate

LISTS: Final[Mapping[Kind, str]] = MappingProxyType(
    {"tool": "tools", "prompt": "prompts", "resource": "resources", "template": "resourceTemplates"}
)
"""The member of a list's result that holds each kind."""
_CHANGES: Final[Mapping[ListKind, tuple[Kind, ...]]] = MappingProxyType(
    {"tools": ("tool",), "prompts": ("prompt",), "resources": ("resource", "template", "lister")}
)
"""The kinds in each list whose changes are told."""


@dataclass(frozen=True, slots=True)
class Target:
    """A definition as a caller may use it."""

    listed: Listed
    mirrored: tuple[Mirrored, ...] = ()
    """The arguments of a tool that headers mirror."""
    file: FileRef | None = None
    """The file that edges answer a read with; None where a worker runs a handler."""
    entry: Mapping[str, Any] | None = None
    """The declaration as lists show it to the view's audience; None where they leave it out."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list."""

    items: bytes
    """The declarations, as a JSON array without its brackets."""
    following: int | None
    """The number of declarations before the next page; None on the last page."""


@dataclass(frozen=True)
class View:
    """The view of callers with equal rights and one language; computed once for each snapshot and set of these.

    A list depends on the snapshot, the caller's authorization and the language only, never on the edge (M35).
    """

    snapshot: Snapshot
    targets: Mapping[Kind, Mapping[str, Target]]
    """By kind and name; the names are in their order (M34)."""
    capabilities: Mapping[str, Any]
    """The capabilities that the announced definitions give, whoever is alive or asks (M33, D15)."""
    is_private: bool
    """Another caller could see something else, so no shared cache may keep answers to this one (M46)."""
    has_tasks: bool = True
    """The endpoint has durable tasks, even if no tool makes any now: a tool that is gone hides none (K12)."""
    has_revisions: bool = False
    """Some definition of the snapshot exists for requests of some revisions only (X61)."""
    by_audience: frozenset[Kind] = frozenset()
    """The kinds whose lists other kinds of clients see otherwise, so that no shared cache may keep them (X14)."""
    languages: OfferedLanguages | None = None
    """The endpoint's; None where no pool declares any."""
    language: str | None = None
    """The chosen one; None for the default."""
    translation: Translation | None = None
    """Translates what it shows; None where nothing changes."""
    source: View | None = None
    """The view of the same callers without a translation, which shares the bytes of untranslated lists."""
    _items: dict[Kind, bytes] = field(default_factory=dict, init=False)
    _entries: dict[Kind, list[Mapping[str, Any]]] = field(default_factory=dict, init=False)
    _digests: dict[ListKind, bytes] = field(default_factory=dict, init=False)

    @cached_property
    def server(self) -> bytes:
        """The server's name, as it is spliced into every result."""
        return server_info(self.server_fields())

    def server_fields(self, *, whole: bool = False) -> dict[str, Any]:
        """Return `serverInfo`: name, title and version, or all of it for a client that connects (X65)."""
        snapshot = self.snapshot
        fields: dict[str, Any] = {"name": snapshot.name, "version": snapshot.version, "title": snapshot.title}
        if whole:
            more = {"description": snapshot.description, "websiteUrl": snapshot.website_url, "icons": snapshot.icons}
            fields |= more
        if self.translation is not None:
            fields |= {name: text for name, text in self.translation.server(snapshot).items() if name in fields}
        return {name: value for name, value in fields.items() if value}

    def ttl(self, cached: str, default: float) -> float:
        """Return the seconds for which clients may keep an answer, one of `CACHED` (X74).

        Args:
            cached: the answer.
            default: the edge's own seconds, which count where a pool states none.
        """
        stated = self.snapshot.ttl.get(cached)
        if stated is None:
            return default
        return min(stated, default) if cached in self.snapshot.partly else stated

    @cached_property
    def needs_scopes(self) -> bool:
        """Whether any definition in it needs scopes."""
        return any(target.listed.definition.scopes for targets in self.targets.values() for target in targets.values())

    @property
    def scope(self) -> str:
        """`cacheScope` of answers that depend on the view alone, and have no text that is translated."""
        return "private" if self.is_private else "public"

    def list_scope(self, kind: Kind) -> str:
        """Return `cacheScope` of a list, whose caches know nothing of `_meta` (X14, X36)."""
        return "private" if kind in self.by_audience or self.is_private_text else "public"

    @property
    def is_private_text(self) -> bool:
        """Whether no shared cache may keep texts: with several languages, one may differ by who asks (X36)."""
        return self.is_private or (self.languages is not None and self.languages.are_several)

    def in_language(self, language: str | None, languages: OfferedLanguages) -> View:
        """Return the view of the same callers in a language."""
        source = self if self.source is None else self.source
        return replace(
            source,
            languages=languages,
            language=language,
            translation=languages.translation(language),
            source=source,
        )

    def find(self, kind: Kind, name: str) -> Target | None:
        """Return the definition of a kind and name, if it exists for this caller."""
        return self.targets[kind].get(name)

    def find_resource(self, uri: str) -> Target | None:
        """Return the handler of a URI: a resource of that name, else the first template that fits it."""
        target = self.find("resource", uri)
        if target is not None:
            return target
        if self.skills and (file := self.skills.files.get(uri)) is not None:
            return Target(file.listed, file=file.ref)
        return next((target for template, target in self._templates if template.match(uri) is not None), None)

    def is_of_other_revisions(self, uri: str) -> bool:
        """Return whether a URI exists, but only in requests of other revisions than this view's (X61)."""
        if not self.has_revisions or self.find_resource(uri) is not None:
            return False
        reads = [each.definition for each in self.snapshot.listed if each.definition.revisions]
        return any(
            each.name == uri if each.kind == "resource" else UriTemplate.parse(each.name).match(uri) is not None
            for each in reads
            if each.kind in ("resource", "template")
        )

    @cached_property
    def skills(self) -> SkillIndex:
        """The skills in it."""
        return SkillIndex(
            target.listed for target in self.targets["resource"].values() if target.listed.definition.skill is not None
        )

    @cached_property
    def has_files(self) -> bool:
        """Whether any resource in it is a file."""
        return any(target.file is not None for target in self.targets["resource"].values())

    def file_state(self, uri: str) -> str | None:
        """Return what changes where the file under a URI does; None where there is no file."""
        target = self.find_resource(uri)
        if target is None or target.file is None:
            return None
        # A skill's definition has the digests of all its files, which those who watch its SKILL.md hear of.
        definition = target.listed.definition
        is_whole = definition.skill is not None and definition.name == uri
        return target.listed.digest if is_whole else target.file.digest

    @cached_property
    def _templates(self) -> Sequence[tuple[UriTemplate, Target]]:
        """Return the templates, the most specific first."""
        parsed = [(UriTemplate.parse(name), target) for name, target in self.targets["template"].items()]
        return sorted(parsed, key=lambda pair: pair[0].rank)

    @cached_property
    def filters(self) -> Mapping[str, Target]:
        """Return the notifications of own extensions, by the fields of listen streams' filters (X46)."""
        found = self.targets["notification"].values()
        return {target.listed.definition.filter: target for target in found if target.listed.definition.filter}

    def page(self, kind: Kind, size: int, begin: int) -> ListPage:
        """Return a part of a list: all of it if `size` is 0, else so many declarations behind the first `begin`."""
        entries = self.entries(kind)
        if not begin and not 0 < size < len(entries):
            if kind not in self._items:
                source = self.source
                if source is not None and entries is source.entries(kind):
                    self._items[kind] = source.page(kind, 0, 0).items
                else:
                    self._items[kind] = _joined(entries)
            return ListPage(self._items[kind], None)
        end = begin + size if size else len(entries)
        return ListPage(_joined(entries[begin:end]), end if end < len(entries) else None)

    def entries(self, kind: Kind) -> list[Mapping[str, Any]]:
        """Return the declarations of a list; those of the view's source where no translation changes them (X37)."""
        if kind not in self._entries:
            self._entries[kind] = self._made_entries(kind)
        return self._entries[kind]

    def _made_entries(self, kind: Kind) -> list[Mapping[str, Any]]:
        if self.source is None:
            return [each.entry for each in self.targets[kind].values() if each.entry is not None]
        plain = self.source.entries(kind)
        if self.translation is None:
            return plain
        listed = [each.listed for each in self.targets[kind].values() if each.entry is not None]
        found = [self.translation.entry(each, entry) for each, entry in zip(listed, plain, strict=True)]
        return plain if all(map(operator.is_, found, plain)) else found

    def list_digest(self, changes: ListKind) -> bytes:
        """Return the digest of a list as its caller sees it: another digest is another list (S15)."""
        if changes not in self._digests:
            names = hashlib.sha256()
            for kind in _CHANGES[changes]:
                if kind in LISTS:
                    shown = [to_json(each) for each in self.entries(kind)]
                else:  # a lister shows nothing of its own, so its definition counts
                    shown = [target.listed.digest.encode() for target in self.targets[kind].values()]
                for each in shown:
                    names.update(b"%d %b" % (len(each), each))
            self._digests[changes] = names.digest()
        return self._digests[changes]

    def discover(self, versions: tuple[str, ...], ttl_ms: int) -> bytes:
        """Return the result of `server/discover`, which tells nothing that depends on the caller (D15, M29)."""
        fields: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(versions),
            "capabilities": dict(self.capabilities),
            "ttlMs": ttl_ms,
            "cacheScope": "public",
        }
        if self.instructions:
            fields["instructions"] = self.instructions
        return result_body(fields)

    @cached_property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        translated = {} if self.translation is None else self.translation.server(self.snapshot)
        return translated.get("instructions", self.snapshot.instructions)


def view_of(snapshot: Snapshot, policy: Policy, rights: Rights, *, tasks: bool = True) -> View:
    """Compute the view of callers with these rights.

    Args:
        snapshot: the definitions on offer.
        policy: the rules that depend on the caller.
        rights: the rights of the caller.
        tasks: the endpoint has durable tasks; without them, tools that are always tasks do not exist (K1).
    """
    targets: dict[Kind, dict[str, Target]] = {kind: {} for kind in (*LISTS, "lister", *sorted(OWN_KINDS))}
    shown = [listed for place, listed in enumerate(snapshot.every) if rights.sees(place)]
    for listed in sorted(shown, key=lambda listed: listed.definition.name):
        definition = listed.definition
        if rights.shows(definition) and (tasks or definition.task != "required"):
            headers = tuple(mirrored(definition.wire["inputSchema"])) if definition.kind == "tool" else ()
            targets[definition.kind][definition.name] = Target(listed, headers, definition.file, definition.wire)
    skills = {
        uri: target.listed for uri, target in targets["resource"].items() if target.listed.definition.skill is not None
    }
    for uri in skills.keys() - without_incomplete(skills):
        del targets["resource"][uri]
    by_audience = _show(targets, rights.audience) if policy.has_apps else frozenset[Kind]()
    is_private = rights.is_named or policy.depends_on_caller or rights.visible is not None
    offered = [listed.definition for listed in snapshot.every if rights.is_offered(listed.definition)]
    return View(
        snapshot,
        targets,
        _capabilities(offered, tasks=tasks, logs=snapshot.logs),
        is_private,
        tasks,
        policy.has_revisions,
        by_audience,
    )


def _show(targets: Mapping[Kind, dict[str, Target]], audience: Audience) -> frozenset[Kind]:
    """Give targets the declarations that an audience sees; return the kinds of lists that others see otherwise."""
    documents = {uri: target.listed for uri, target in targets["resource"].items()}
    for kind in LISTS:
        for name, target in targets[kind].items():
            shown = entry(target.listed.definition, documents, target.listed.pool, audience)
            if shown is not target.entry:
                targets[kind][name] = replace(target, entry=shown)
    differs = any(has_ui(target.listed.definition) for target in targets["tool"].values())
    return frozenset({"tool"}) if differs else frozenset()


def _capabilities(offered: Sequence[Definition], *, tasks: bool, logs: bool) -> Mapping[str, Any]:
    """Return the capabilities that definitions give, whoever may use them: they tell nothing of callers (D15)."""
    kinds = {definition.kind for definition in offered}
    found: dict[str, Any] = {}
    if "tool" in kinds:
        found["tools"] = {"listChanged": True}
    if kinds & {"resource", "template", "lister"}:
        found["resources"] = {"listChanged": True, "subscribe": True}
    if "prompt" in kinds:
        found["prompts"] = {"listChanged": True}
    if any(definition.completes for definition in offered):
        found["completions"] = {}
    if extensions := _extensions(offered, tasks=tasks):
        found["extensions"] = extensions
    if found and logs:
        found["logging"] = {}
    if experimental := _advertised(offered, "experimental"):
        found["experimental"] = experimental
    return MappingProxyType(found)


def _extensions(offered: Sequence[Definition], *, tasks: bool) -> dict[str, Any]:
    """Return the extensions that definitions give, with their settings."""
    found = _advertised(offered, "extension")
    if tasks and any(definition.task is not None for definition in offered):
        found[TASKS_EXTENSION] = {}
    if any(definition.skill is not None for definition in offered):
        found[SKILLS_EXTENSION] = {"directoryRead": True}
    if any(definition.kind == "resource" and is_ui(definition) for definition in offered):
        found[APPS_EXTENSION] = {}
    return found


def _advertised(offered: Sequence[Definition], kind: Kind) -> dict[str, Any]:
    """Return the settings of what clients read of own extensions, by name (X41, X47)."""
    return {definition.name: definition.wire for definition in offered if definition.kind == kind}


def _joined(entries: Iterable[Mapping[str, Any]]) -> bytes:
    return b",".join(map(to_json, entries))
