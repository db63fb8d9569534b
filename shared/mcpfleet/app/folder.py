"""A folder of an application whose files are read: nothing outside of it can be reached through it (X6).

Each part of a path opens below the descriptor of the part before it, and no link is followed by the system. So what is
checked is what is read, whoever changes the folder meanwhile.
"""

from __future__ import annotations

import errno
import importlib.util
import mimetypes
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from mcpfleet.app.errors import Mistake
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import LONGEST_PATH, FileRef, file_digest

Links = Literal["refuse", "inside"]
"""Whether a link is a mistake, or taken where it stays below the folder, as in a volume of a Kubernetes ConfigMap."""
Stamp: TypeAlias = frozenset[tuple[str, int, int, int]]
"""Path, inode, size and moment of change of each file: two equal stamps mean the same files."""

LARGEST: Final = 64 * 1024 * 1024
"""Bytes that are read of one file, whatever the settings say; a worker's setting is below."""
MOST_ENTRIES: Final = 20_000
"""Files and folders below one folder."""
_DEEPEST: Final = 32
_MOST_LINKS: Final = 16
"""Links on the way to one file."""
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_IGNORED: Final = frozenset({"__pycache__"})
"""Folders that are left out, besides names that begin with a dot: they are those of editors, versions and systems."""
_TYPES: Final = {
    ".md": "text/markdown", ".py": "text/x-python", ".sh": "text/x-shellscript", ".js": "text/javascript",
    ".mjs": "text/javascript", ".ts": "text/x-typescript", ".json": "application/json", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".toml": "application/toml", ".txt": "text/plain", ".csv": "text/csv",
    ".html": "text/html", ".css": "text/css", ".xml": "application/xml", ".svg": "image/svg+xml", ".png": "image/png",
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".pdf": "application/pdf",
    ".zip": "application/zip",
}  # fmt: skip
"""Media types by endings, the same on every machine; others are the standard library's."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file, from one bounded read."""

    body: bytes
    digest: str

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)

    def ref(self, path: str, mime: str | None = None) -> FileRef:
        """Return the reference to it, with the media type of its path's ending by default."""
        return FileRef(path=path, digest=self.digest, size=self.size, mime=mime or mime_of(path))


class Folder:
    """A folder that a declaration names."""

    def __init__(self, root: Path, links: Links = "refuse") -> None:
        """Open nothing yet.

        Args:
            root: the folder; it may itself be reached by links, since the author names it.
            links: what happens to links below it.
        """
        if links not in ("refuse", "inside"):
            raise Mistake(f'links must be "refuse" or "inside", not {links!r}')
        self.root = root
        self._follows = links == "inside"

    def shown(self, path: str) -> str:
        """Return a file's place for an error."""
        return str(self.root / path)

    def read(self, path: str, limit: int = LARGEST) -> FileContent:
        """Read one file: its bytes, size and digest come from one read.

        Args:
            path: below the folder, with `/` between the parts.
            limit: bytes that it may have.

        Raises:
            Mistake: it is missing, larger, no regular file, or its path leads elsewhere.
        """
        check_path(path)
        with self._opened() as root, self._found(root, path) as found:
            if not stat.S_ISREG(os.fstat(found[-1]).st_mode):
                raise Mistake(f"{self.shown(path)} is not a regular file")
            with os.fdopen(os.dup(found[-1]), "rb") as file:
                body = file.read(limit + 1)
        if len(body) > limit:
            raise Mistake(f"{self.shown(path)} has over {limit} bytes")
        return FileContent(body, file_digest(body))

    def paths(self) -> list[str]:
        """Return the paths of all files, in order; those of names with a leading dot are left out.

        Raises:
            Mistake: one of them is no regular file, a link that may not be taken, or has a name that is refused.
        """
        return sorted(path for path, *_ in self.stamp())

    def stamp(self, *paths: str) -> Stamp:
        """Return the stamp of the whole folder, or of some files alone.

        Raises:
            Mistake: as `paths`, or one of these files is missing.
        """
        with self._opened() as root:
            if not paths:
                return frozenset(self._walk(root, "", [MOST_ENTRIES]))
            stamped = []
            for path in paths:
                check_path(path)
                with self._found(root, path) as found:
                    stamped.append(_stamped(path, os.fstat(found[-1])))
            return frozenset(stamped)

    @contextmanager
    def _opened(self) -> Iterator[list[int]]:
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Mistake(f"{self.root} is not a folder that can be read: {error.strerror}") from None
        try:
            yield [root]
        finally:
            os.close(root)

    def _walk(self, way: list[int], above: str, left: list[int]) -> Iterator[tuple[str, int, int, int]]:
        """Stamp all files below the last of these descriptors, which lead to it from the root."""
        if above.count("/") > _DEEPEST:
            raise Mistake(f"{self.shown(above)} is over {_DEEPEST} folders deep")
        with os.scandir(way[-1]) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            if name.startswith(".") or name in _IGNORED:
                continue
            path = f"{above}{name}"
            check_path(path, self.shown(path))
            left[0] -= 1
            if left[0] < 0:
                raise Mistake(f"{self.root} has over {MOST_ENTRIES} files and folders")
            with self._found(way, name, self.shown(path)) as found:
                about = os.fstat(found[-1])
                if stat.S_ISDIR(about.st_mode):
                    yield from self._walk(found, f"{path}/", left)
                    continue
                if not stat.S_ISREG(about.st_mode):
                    raise Mistake(f"{self.shown(path)} is neither a regular file nor a folder")
            yield _stamped(path, about)

    @contextmanager
    def _found(self, way: list[int], path: str, shown: str | None = None) -> Iterator[list[int]]:
        """Open what a path below the last descriptor names, part by part; yields the descriptors that lead there.

        A link that is taken is walked like a path, so it cannot lead above the first descriptor.
        """
        shown = shown or self.shown(path)
        way, parts, links = list(way), path.split("/")[::-1], 0
        with ExitStack() as opened:
            while parts:
                part = parts.pop()
                if part in ("", "."):
                    continue
                if part == "..":  # of a link alone: a path has none
                    if len(way) == 1:
                        raise Mistake(f"{shown} leads out of {self.root}")
                    way.pop()
                    continue
                try:
                    descriptor = os.open(part, _OPEN, dir_fd=way[-1])
                except OSError as error:
                    links += 1
                    if links > _MOST_LINKS:
                        raise Mistake(f"{shown} is behind over {_MOST_LINKS} links") from None
                    parts.extend(self._target(part, way[-1], error, shown).split("/")[::-1])
                    continue
                opened.callback(os.close, descriptor)
                way.append(descriptor)
            yield way

    def _target(self, part: str, folder: int, error: OSError, shown: str) -> str:
        """Return where a link leads that may be taken.

        Raises:
            Mistake: it may not, or it is something else that cannot be opened.
        """
        try:
            target = os.readlink(part, dir_fd=folder)
        except OSError:
            why = "is a device or a socket" if error.errno == errno.ENXIO else f"cannot be read: {error.strerror}"
            raise Mistake(f"{shown} {why}") from None
        if not self._follows:
            raise Mistake(f'{shown} is a link: put the file in its place, or say links="inside"')
        if target.startswith("/"):
            raise Mistake(f"{shown} is a link to an absolute path: it must stay below {self.root}")
        return target


def root_of(site: Site, package: str | None) -> Path:
    """Return where a declaration's relative paths begin: at its package, else beside the file that declares.

    Raises:
        Mistake: there is no such package, it is no folder, or the declaration stands in no file.
    """
    if package is None:
        if site.file is None or not Path(site.file).is_file():
            raise Mistake("this module has no file, so nothing is beside it: name a `package`")
        return Path(site.file).resolve().parent
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places or not Path(places[0]).is_dir():
        raise Mistake(f"{package!r} is no installed package with a folder")
    return Path(places[0])


def check_path(path: str, shown: str | None = None) -> None:
    """Check the path of a file below its folder.

    Raises:
        Mistake: it is absolute or too long, or has `..`, an empty part, a backslash, a control character, or letters
            that are not in the normal form C.
    """
    shown = repr(path) if shown is None else repr(shown)
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise Mistake(f"{shown}: a file's path is relative, and has no empty part, `.` or `..`")
    if "\\" in path or any(unicodedata.category(each) in ("Cc", "Cs") for each in path):
        raise Mistake(f"{shown}: a file's path has no backslash, no control character, and is UTF-8")
    if unicodedata.normalize("NFC", path) != path:
        raise Mistake(f"{shown}: a file's path is in the normal form C of Unicode: rename the file")
    if len(path) > LONGEST_PATH:
        raise Mistake(f"{shown}: a file's path has up to {LONGEST_PATH} characters")


def mime_of(path: str) -> str:
    """Return the media type of a file by its ending."""
    ending = PurePosixPath(path).suffix.lower()
    return _TYPES.get(ending) or mimetypes.guess_type(path, strict=True)[0] or "application/octet-stream"


def _stamped(path: str, about: os.stat_result) -> tuple[str, int, int, int]:
    return path, about.st_ino, about.st_size, about.st_mtime_ns
