"""Skills of an App: folders with a SKILL.md, read and checked by the Agent Skills specification (X21, X26)."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import DeclarationWarning, Mistake
from mcpfleet.app.file_source import FileResource, FileSource, Reading
from mcpfleet.app.folder import FileContent, Folder, Stamp
from mcpfleet.app.frontmatter import frontmatter
from mcpfleet.app.site import Site
from mcpfleet.app.uri import check_uri
from mcpfleet.contracts.manifest import MOST_SKILL_FILES, Definition, FileRef, Skill
from mcpfleet.contracts.skills import MARKDOWN, SKILL_FILE, SKILLS_SCHEME, check_skill, file_uri
from mcpfleet.wire.protocol import MODERN

_SEGMENT: Final = re.compile(r"[a-z0-9][a-z0-9._~-]*")


class SkillSource(FileSource):
    """All skills of one folder."""

    def __init__(
        self, folder: Folder, site: Site, *, prefix: str, only_for: Collection[str], scopes: Collection[str]
    ) -> None:
        """Read nothing yet.

        Args:
            folder: has a folder for each skill, at any depth.
            site: the declaration.
            prefix: the beginning of all paths, without a slash at its ends; may be empty.
            only_for: the callers for whom they exist.
            scopes: the scopes that a caller needs.

        Raises:
            Mistake: the prefix has another form.
        """
        super().__init__(folder, site)
        if prefix and not all(_SEGMENT.fullmatch(part) for part in prefix.split("/")):
            raise Mistake(f"the prefix {prefix!r} must be parts of a-z 0-9 . _ ~ - with a slash between them")
        self._base = SKILLS_SCHEME + (f"{prefix}/" if prefix else "")
        self._options: Mapping[str, Any] = {"only_for": only_for, "scopes": scopes, "revisions": (MODERN,)}
        self._declared: tuple[FileResource, ...] = ()

    def stamp(self) -> Stamp:
        """Return the folder's stamp."""
        return self.folder.stamp()

    def read(self) -> Reading:
        """Read every file of every skill; files beside them are no part of any."""
        paths = self.folder.paths()
        roots = [path.removesuffix(SKILL_FILE) for path in paths if PurePosixPath(path).name == SKILL_FILE]
        if not roots:
            raise Mistake(f"{self.folder.root} has no skill: a skill is a folder with a {SKILL_FILE}")
        if "" in roots:
            raise Mistake(f"{self.folder.shown(SKILL_FILE)}: name the folder above, which has a folder for each skill")
        refs: dict[str, FileRef] = {}
        texts: dict[str, FileContent] = {}
        for path in paths:
            if any(path.startswith(root) for root in roots):
                content = self.folder.read(path)
                refs[path] = content.ref(path)
                if path.removesuffix(SKILL_FILE) in roots:
                    texts[path] = content
        definitions = tuple(self._define(root, refs, texts[root + SKILL_FILE]) for root in sorted(roots))
        return Reading(tuple(refs.values()), definitions)

    def _define(self, root: str, refs: Mapping[str, FileRef], content: FileContent) -> Definition:
        shown = self.folder.shown(root + SKILL_FILE)
        try:
            fields = frontmatter(content.body.decode())
            files = tuple(
                ref.model_copy(update={"path": path.removeprefix(root)})
                for path, ref in sorted(refs.items())
                if path.startswith(root)
            )
            _check_number(files)
            uri = file_uri(self._base, root + SKILL_FILE)
            check_uri(uri)
            skill = Skill(frontmatter=fields, files=files)
            check_skill(uri, skill)
            wire = {"uri": uri, "name": fields["name"], "description": fields["description"], "mimeType": MARKDOWN}
            declared = Declaration(kind="resource", name=uri, **self._options).define(None)
            file = next(ref for ref in files if ref.path == SKILL_FILE)
            return declared.model_copy(update={"wire": wire, "file": file, "skill": skill})
        except UnicodeDecodeError:
            raise Mistake(f"{shown}: it is not UTF-8") from None
        except ValueError as error:
            raise Mistake(f"{shown}: {error}") from None
        except Mistake as mistake:
            raise Mistake(f"{shown}: {mistake.why}") from None

    def take(self, reading: Reading) -> None:
        """Declare the skills."""
        made = tuple(FileResource(self, definition) for definition in reading.found)
        self.declarations.swap(self._declared, made)
        self._declared = made


def _check_number(files: Collection[FileRef]) -> None:
    if len(files) > MOST_SKILL_FILES:
        raise Mistake(f"a skill has up to {MOST_SKILL_FILES} files, and this one has {len(files)}")


def warn_of_equal_names(definitions: Collection[Definition]) -> None:
    """Warn of skills that share a name: hosts must tell them apart by their paths."""
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for definition in definitions:
        if definition.skill is not None:
            paths[definition.skill.frontmatter["name"]].append(definition.name)
    for name, found in paths.items():
        if len(found) > 1:
            warnings.warn(
                f"the skill name {name!r} stands at {len(found)} paths: {', '.join(sorted(found)[:3])}",
                DeclarationWarning,
                stacklevel=3,
            )
