"""The skills that a view has: their entries, their files by URI, and their directories (X21 to X24, X29)."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.manifest import FileRef
from mcpfleet.contracts.skills import DIRECTORY, SKILL_FILE, SKILLS_SCHEME, base_of, entry, file_uri

LONGEST_PAGE: Final = 1024 * 1024
"""Bytes of a page of entries; an entry that is larger has a page of its own."""
ENTRIES: Final = 50
"""Entries of a page."""
CHILDREN: Final = 200
"""Children of a directory in a page."""


class SkillFile(NamedTuple):
    """A file of a skill, with the innermost skill that has it."""

    listed: Listed
    ref: FileRef


class SkillPage(NamedTuple):
    """A part of a list."""

    items: bytes
    """A JSON array without its brackets."""
    last: str | None
    """The URI before the next page; None on the last page."""


class SkillIndex:
    """All skills of a view, by their URIs."""

    def __init__(self, listed: Iterable[Listed]) -> None:
        """Index skills; `listed` are definitions with a `skill`."""
        self._listed = {each.definition.name: each for each in sorted(listed, key=lambda each: each.definition.name)}

    def __len__(self) -> int:
        return len(self._listed)

    def find(self, uri: str) -> Listed | None:
        """Return the skill of a SKILL.md."""
        return self._listed.get(uri)

    @cached_property
    def entries(self) -> Mapping[str, bytes]:
        """Each skill's entry as JSON, by URI and in their order."""
        found = {}
        for uri, listed in self._listed.items():
            assert listed.definition.skill is not None
            found[uri] = to_json(entry(uri, listed.definition.skill))
        return found

    @cached_property
    def digest(self) -> str:
        """Names this state of all entries: pages of two states are no list."""
        return hashlib.sha256(b"".join(self.entries.values())).hexdigest()[:16]

    @cached_property
    def files(self) -> Mapping[str, SkillFile]:
        """All files by URI; one of nested skills belongs to the innermost."""
        found: dict[str, SkillFile] = {}
        for uri, listed in sorted(self._listed.items(), key=lambda each: len(each[0])):
            assert listed.definition.skill is not None
            for ref in listed.definition.skill.files:
                found[file_uri(base_of(uri), ref.path)] = SkillFile(listed, ref)
        return found

    @cached_property
    def _directories(self) -> Mapping[str, Mapping[str, bytes]]:
        """The children of each directory as JSON, by their URIs."""
        found: dict[str, dict[str, bytes]] = {}
        for uri, file in self.files.items():
            child, item = uri, to_json(self._resource(uri, file))
            while (above := child.rpartition("/")[0]) and above + "/" != SKILLS_SCHEME:
                children = found.setdefault(above, {})
                is_known, children[child] = child in children, item
                if is_known:
                    break
                child = above
                item = to_json({"uri": child, "name": child.rpartition("/")[2], "mimeType": DIRECTORY})
        return {uri: dict(sorted(children.items())) for uri, children in found.items()}

    def _resource(self, uri: str, file: SkillFile) -> dict[str, Any]:
        """Return a file as a list of resources has it."""
        definition = file.listed.definition
        if uri == definition.name:
            return definition.wire
        return {"uri": uri, "name": file.ref.path.rpartition("/")[2], "mimeType": file.ref.mime, "size": file.ref.size}

    def owner(self, directory: str) -> Listed | None:
        """Return the innermost skill that a directory is part of; None for one above all skills, and for none."""
        at = directory
        while at and at + "/" != SKILLS_SCHEME:
            if (found := self._listed.get(f"{at}/{SKILL_FILE}")) is not None:
                return found
            at = at.rpartition("/")[0]
        return None

    def is_directory(self, uri: str) -> bool:
        """Return whether a URI is that of a directory."""
        return uri in self._directories

    def page(self, after: str | None) -> SkillPage:
        """Return the entries that follow a URI."""
        return _page(self.entries, after, ENTRIES)

    def children(self, directory: str, after: str | None) -> SkillPage:
        """Return the children of a directory that follow a URI."""
        return _page(self._directories[directory], after, CHILDREN)

    def directory_digest(self, directory: str) -> str:
        """Name this state of a directory's children."""
        return hashlib.sha256(b"".join(self._directories[directory].values())).hexdigest()[:16]


def without_incomplete(skills: Mapping[str, Listed]) -> set[str]:
    """Return the URIs of skills that a caller may see: one with a hidden skill in it would not be complete (X29).

    Args:
        skills: those that the caller has the rights for, by URI.
    """
    return {
        uri
        for uri, listed in skills.items()
        if listed.definition.skill is not None
        and all(
            file_uri(base_of(uri), ref.path) in skills
            for ref in listed.definition.skill.files
            if ref.path.endswith(f"/{SKILL_FILE}")
        )
    }


def _page(items: Mapping[str, bytes], after: str | None, most: int) -> SkillPage:
    """Return the items that follow a name, up to a number and to the bytes of a page."""
    names: Sequence[str] = list(items)
    begin = 0 if after is None else bisect_right(names, after)
    end, size = begin, 0
    while end < len(names) and end - begin < most:
        size += len(items[names[end]]) + 1
        if size > LONGEST_PAGE and end > begin:
            break
        end += 1
    body = b",".join(items[name] for name in names[begin:end])
    return SkillPage(body, names[end - 1] if end < len(names) else None)
