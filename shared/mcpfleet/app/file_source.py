"""Content of an App that comes from files: read where it is declared, and again when the files change (X1, X7).

An App's feature makes a `FileSource` of a `Folder`, and adds it by `Declarations.add_source`. A resource that is one
file is a `FileResource`, whose definition names the file: edges answer its reads without a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from mcpfleet.app.context import Context
from mcpfleet.app.errors import Mistake
from mcpfleet.app.folder import FileContent, Folder, Stamp
from mcpfleet.app.handler import Answer, Function, Handler, HandlerRequest
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import Definition, FileRef, file_digest
from mcpfleet.wire.file_contents import content


class FilesChanged(Exception):
    """Raised when a file has other bytes than those that were announced: the next reload announces them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The files that a source has read and checked, and not declared yet."""

    refs: tuple[FileRef, ...]
    """The files whose bytes the catalog must have."""
    found: Any
    """The source's own."""


NOTHING_READ = Reading((), None)


class Declaring(Protocol):
    """The declarations of a Router."""

    def swap(self, former: Sequence[Handler], new: Sequence[Handler]) -> None:
        """Declare handlers in place of former ones, all at once.

        Raises:
            Mistake: a name is taken, or there are too many; nothing has changed.
        """

    def changed(self) -> None:
        """Tell the workers that serve these declarations that they have changed."""


class FileSource(ABC):
    """Something that an App declares from the files of one folder.

    It is read at once where it is declared, so a mistake in a file is an error of the declaration. A worker then
    compares `stamp` every few seconds. Where it differs, the worker calls `read` in a thread, and `take` on its loop.
    Files that `read` or `take` refuses leave the former ones in place.

    Attributes:
        folder: where its files are.
        site: the declaration, for errors.
        declarations: those that it is added to.
        reading: what was taken last.
        stamped: the stamp of these files, from before they were read.
    """

    declarations: Declaring

    def __init__(self, folder: Folder, site: Site) -> None:
        self.folder = folder
        self.site = site
        self.reading = NOTHING_READ
        self.stamped: Stamp = frozenset()

    @abstractmethod
    def stamp(self) -> Stamp:
        """Return what tells two states of its files apart without reading them; raises `Mistake`."""

    @abstractmethod
    def read(self) -> Reading:
        """Read and check all of its files, and change nothing: on any thread.

        Raises:
            Mistake: they cannot be served; the sentence names the file.
        """

    @abstractmethod
    def take(self, reading: Reading) -> None:
        """Declare what was read in place of the former, for example by `Declarations.swap`.

        Raises:
            Mistake: a name is taken; nothing has changed.
        """

    def load(self, reading: Reading) -> None:
        """Take a reading, and remember it."""
        self.take(reading)
        self.reading = reading

    def content(self, ref: FileRef) -> bytes:
        """Return the bytes of a file of the last reading, on any thread; a source of compiled bytes overrides it.

        Raises:
            FilesChanged: the file has other bytes by now.
        """
        try:
            found = self.folder.read(ref.path, ref.size)
        except Mistake as mistake:
            raise FilesChanged(mistake.why) from None
        if found.digest != ref.digest:
            raise FilesChanged(f"{self.folder.shown(ref.path)} has changed since it was announced")
        return found.body


def find_content(sources: Iterable[FileSource], digest: str) -> bytes:
    """Return the bytes that a digest names, from the source that has them.

    Raises:
        FilesChanged: none has them any more.
    """
    for source in sources:
        for ref in source.reading.refs:
            if ref.digest == digest:
                body = source.content(ref)
                if file_digest(body) != digest:
                    raise FilesChanged(f"{source.folder.shown(ref.path)} has changed since it was announced")
                return body
    raise FilesChanged("no file of the App has these bytes any more")


def answer_with_meta(definition: Definition, request: HandlerRequest, members: Mapping[str, Any]) -> Answer:
    """Compose the answer to a read of one text or blob, with the `_meta` of its declaration."""
    meta = definition.wire.get("_meta")
    block = {"uri": request.uri or definition.name, **members}
    return Answer({"contents": [block | ({"_meta": meta} if meta else {})]})


class FileResource(Handler):
    """A resource that is a file; the worker's own answer serves edges of a release that knows no files."""

    def __init__(self, source: FileSource, definition: Definition) -> None:
        """Declare a file of a source.

        Args:
            source: has read it.
            definition: its `file` names the file; the `_meta` of its `wire` is that of the contents too.
        """
        assert definition.file is not None
        self._file: FileRef = definition.file
        function = Function(lambda: find_content([source], self._file.digest))
        function.site = source.site
        super().__init__(definition, function)

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del request, arguments
        return self._function.start({}, ctx, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        name, text = content(value, self._file.mime)
        return answer_with_meta(self.definition, request, {"mimeType": self._file.mime, name: text})


class OneFile(FileSource):
    """A resource that is one file, under a URI of its own."""

    def __init__(
        self, folder: Folder, path: str, site: Site, define: Callable[[FileContent, FileRef], Definition]
    ) -> None:
        """Read nothing yet.

        Args:
            folder: where the file is.
            path: the file's, below the folder.
            site: the declaration, for errors.
            define: makes the definition of what was read, with the reference as its `file`; raises `Mistake`.
        """
        super().__init__(folder, site)
        self._path = path
        self._define = define
        self._declared: tuple[FileResource, ...] = ()

    def stamp(self) -> Stamp:
        """Return the file's stamp."""
        return self.folder.stamp(self._path)

    def read(self) -> Reading:
        """Read the file, and define it."""
        content = self.folder.read(self._path)
        definition = self._define(content, content.ref(self._path))
        return Reading(definition.files, definition)

    def take(self, reading: Reading) -> None:
        """Declare the resource."""
        made = (FileResource(self, reading.found),)
        self.declarations.swap(self._declared, made)
        self._declared = made
