"""The interface of an App that a worker serves, or of sources that it hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mcpfleet.app import Handler
from mcpfleet.app.file_source import FileSource
from mcpfleet.app.handler import Interceptor
from mcpfleet.app.hosts import Hosts, Watcher
from mcpfleet.app.lifespan import Lifespans
from mcpfleet.app.localized import Localizer
from mcpfleet.app.permit import Permitter
from mcpfleet.contracts.manifest import Manifest


class ServedApp(Protocol):
    """The part of an App that its workers use; its declarations may change while it is served."""

    @property
    def name(self) -> str:
        """Its name; its pool is named after it."""

    @property
    def handlers(self) -> Sequence[Handler]:
        """All declarations, by kind and name."""

    @property
    def interceptors(self) -> tuple[Interceptor, ...]:
        """The functions around every handler."""

    @property
    def observers(self) -> tuple[Callable[[Any], Any], ...]:
        """The functions that are told what happens in its workers."""

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """The functions that are told which URIs clients watch."""

    @property
    def file_sources(self) -> tuple[FileSource, ...]:
        """The sources of its declarations from files."""

    @property
    def logs(self) -> bool:
        """Whether its handlers may log to their clients."""

    @property
    def clean(self) -> Callable[[str], str] | None:
        """Cleans every text of a tool's result; None leaves them."""

    @property
    def hosts(self) -> Hosts:
        """The workers that serve it now."""

    @property
    def permitters(self) -> Sequence[Permitter]:
        """All that has a permit."""

    def check_documents(self) -> None:
        """Check the documents of MCP Apps; raises `DeclarationError`."""

    def manifest(self) -> Manifest:
        """Return what a worker announces."""

    def texts(self, language: str | None = None) -> Localizer:
        """Return what translates handlers' texts into a language."""

    def lifespans(self) -> Lifespans:
        """Return what a worker enters before its first call, and leaves after its last."""
