"""Hears changes of an application's files: of every Python file beside a module that it imports, and below that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from watchfiles import Change, DefaultFilter, awatch

_QUIET: Final = 200
"""Milliseconds without a change after which several changes count as one."""
_LATEST: Final = 1_000
"""Milliseconds after which they count in any case."""
_MOST_FOLDERS: Final = 1_000
"""Folders that are watched."""


class SourceFiles:
    """The files of an application. Folders are added, and never removed, so that no change is lost in between."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._has_changed = anyio.Event()
        self._watched: set[Path] = set()
        self._configuration: set[Path] = set()
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    def add(self, files: Iterable[str], since: float) -> None:
        """Watch the folders of these modules too, and the packages in them; callable while it runs.

        Args:
            files: the modules' files, and files of configuration, of which each is watched alone.
            since: Unix time; a file that has changed after it, before it is watched, has changed.
        """
        paths = {Path(file) for file in files}
        configuration = {path for path in paths if path.suffix != ".py"}
        self._configuration |= configuration
        roots = {path.parent for path in paths - configuration}
        folders = {folder for root in roots for folder in source_folders(root)}
        self._watch(folders | {path.parent for path in configuration}, since)

    async def wait(self) -> None:
        """Wait until a file has changed since the last answer of `changed`."""
        await self._has_changed.wait()

    async def changed(self) -> set[str]:
        """Wait for a change; returns the names of the files that have changed since the last answer."""
        await self.wait()
        self._has_changed = anyio.Event()
        names, self._names = self._names, set()
        return names

    def _watch(self, folders: set[Path], since: float) -> None:
        fresh = set(sorted(folders - self._watched)[: _MOST_FOLDERS - len(self._watched)])
        if fresh and self._tasks is not None:
            self._watched |= fresh
            self._tasks.start_soon(self._hear, fresh)
            self._tasks.start_soon(self._look_back, fresh, since)  # once changes are heard

    async def _look_back(self, folders: set[Path], since: float) -> None:
        """Tell of files that changed before their folder was watched."""
        for folder in folders:
            files = [*folder.glob("*.py"), *(each for each in self._configuration if each.parent == folder)]
            self._tell({file.name for file in files if _modified(file) > since})

    async def _hear(self, folders: set[Path]) -> None:
        """Hear changes in some folders. Each set of folders takes a thread, and is not watched below itself."""
        watch = awatch(
            *folders, watch_filter=_SourceFilter(self._configuration), step=_QUIET, debounce=_LATEST, recursive=False
        )
        async for changes in watch:
            for _, path in changes:
                self._take(Path(path))

    def _take(self, path: Path) -> None:
        if path.suffix == ".py" or path in self._configuration:
            self._tell({path.name})
        elif path.is_dir():  # a package that is made now
            self._watch(set(source_folders(path)), 0.0)

    def _tell(self, names: set[str]) -> None:
        if names:
            self._names |= names
            self._has_changed.set()


def _modified(file: Path) -> float:
    """When a file was last written, in Unix time; 0 if it is gone."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


class _SourceFilter(DefaultFilter):
    """Lets Python files through, files of configuration, and folders that are made."""

    def __init__(self, configuration: Collection[Path]) -> None:
        """Let these files through too; the collection may grow."""
        super().__init__()
        self._configuration = configuration

    def __call__(self, change: Change, path: str) -> bool:
        is_source = (
            path.endswith(".py")
            or Path(path) in self._configuration
            or (change is Change.added and Path(path).is_dir())
        )
        return is_source and super().__call__(change, path)


def source_folders(root: Path) -> Iterator[Path]:
    """Yield a folder, and those below it that could be packages of it: each has Python files, and a module's name."""
    yield root
    try:
        below = sorted(each for each in root.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return
    for each in below:
        if each.name.isidentifier() and each.name not in _SourceFilter.ignore_dirs and any(each.glob("*.py")):
            yield from source_folders(each)
