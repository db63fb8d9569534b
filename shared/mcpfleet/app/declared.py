"""The declarations of a Router, together with those of the Routers that it includes.

Nothing is copied when a Router is included: what it declares later appears too. A declaration is checked wherever it
would appear, before it appears anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcpfleet.app.completion import Completes
from mcpfleet.app.errors import Mistake
from mcpfleet.app.file_source import FileSource
from mcpfleet.app.handler import Handler, Interceptor
from mcpfleet.app.hosts import Hosts, Watcher
from mcpfleet.app.lifespan import Scope
from mcpfleet.app.resource import Reads
from mcpfleet.app.site import Site
from mcpfleet.contracts.hints import OwnChange
from mcpfleet.contracts.manifest import MOST_DEFINITIONS, Definition, Kind

KINDS: Final[tuple[Kind, ...]] = ("tool", "prompt", "resource", "template", "lister", "method")
"""The kinds that have functions."""
_NAMED: Final = frozenset[Kind]({"tool", "prompt", "lister"})
"""Kinds whose names take a prefix; the others have URIs."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]*")

ANY: Final = object()
"""Stands for the cleaner of a Router, which has none of its own."""


@dataclass(eq=False)
class Inclusion:
    """Declarations that others include, and how they appear there."""

    inner: Declarations
    prefix: str
    site: Site
    """The call that included them."""
    _shown: WeakKeyDictionary[Handler, tuple[Definition, Handler]] = field(default_factory=WeakKeyDictionary)

    def name_within(self, kind: Kind, name: str) -> str | None:
        """Return the inner name of a declaration that has this name outside; None if it cannot have it."""
        if kind not in _NAMED:
            return name
        return name.removeprefix(self.prefix) if name.startswith(self.prefix) else None

    def shown(self, handler: Handler) -> Handler:
        """Return an inner declaration as it appears outside: under the prefix, with the inner interceptors.

        Raises:
            Mistake: its name is too long with the prefix.
        """
        definition, made = self._shown.get(handler, (None, None))
        if made is None or definition is not handler.definition:  # a completer has changed it meanwhile
            prefix = self.prefix if handler.definition.kind in _NAMED else ""
            made = handler.included(prefix, lambda: self.inner.interceptors)
            self._shown[handler] = handler.definition, made
        return made


class Declarations:
    """The declarations of one Router, and of those that it includes."""

    def __init__(self) -> None:
        self.own: dict[Kind, dict[str, Handler]] = {kind: {} for kind in KINDS}
        self.interceptors: list[Interceptor] = []
        """Run around every handler here, the outermost first."""
        self.watchers: list[Watcher] = []
        self.observers: list[Callable[[Any], Any]] = []
        self.file_sources: list[FileSource] = []
        """The sources of declarations from files, which are read again when they change."""
        self.hosts = Hosts()
        """The workers that serve them now."""
        self.clean: object = ANY
        """The cleaner of an App's results; a Router takes any."""
        self.extension: object | None = None
        """The own extension whose declarations they are."""
        self.included: list[Inclusion] = []
        self.includers: list[Declarations] = []
        """Those that include them, each once."""
        self.scope = Scope(lambda: [each.scope for each in self.outer()])
        """Their lifespan, and the functions that stand for others among them."""
        self._completable: list[tuple[object, Completes]] = []

    def of(self, kind: Kind) -> dict[str, Handler]:
        """Return the declarations of one kind by name, the included ones last."""
        included = (inclusion.shown(each) for inclusion in self.included for each in inclusion.inner.of(kind).values())
        return self.own[kind] | {each.definition.name: each for each in included}

    def parts(self) -> list[Declarations]:
        """Return these declarations and those that they include, at any depth, each once: these come first."""
        return _each_once(self, lambda part: (inclusion.inner for inclusion in part.included))

    def outer(self) -> list[Declarations]:
        """Return these declarations and those that include them, at any depth, each once."""
        return _each_once(self, lambda part: part.includers)

    def find(self, kind: Kind, name: str) -> Handler | None:
        """Return the declaration of a kind that has this name here, as it was declared; None if there is none."""
        if (own := self.own[kind].get(name)) is not None:
            return own
        for inclusion in self.included:
            inner = inclusion.name_within(kind, name)
            if inner is not None and (found := inclusion.inner.find(kind, inner)) is not None:
                return found
        return None

    def find_completable(self, of: object) -> Completes | None:
        """Return the prompt or template of a function, or of a name here; None if there is none."""
        for function, handler in reversed(self._completable):
            if function is of or handler.definition.name == of:
                return handler
        for inclusion in self.included:
            kinds: tuple[Kind, ...] = ("prompt", "template") if isinstance(of, str) else ("template",)
            for kind in kinds:
                inner = inclusion.name_within(kind, of) if isinstance(of, str) else of
                if inner is not None and (found := inclusion.inner.find_completable(inner)) is not None:
                    return found
        return None

    def find_reads(self, of: object) -> list[Reads]:
        """Return the resources and templates of a function, or of a URI or template here."""
        kinds: tuple[Kind, ...] = ("resource", "template")
        own = [handler for kind in kinds for handler in self.own[kind].values() if isinstance(handler, Reads)]
        found = [each for each in own if each.function is of or each.definition.name == of]
        return found or [each for inclusion in self.included for each in inclusion.inner.find_reads(of)]

    def add(self, function: object, handler: Handler) -> None:
        """Declare a function here, and wherever these declarations are included.

        Raises:
            Mistake: its name is taken in one of these places, or there are too many declarations.
        """
        self.claim([handler])
        handler.scope = self.scope
        self.own[handler.definition.kind][handler.definition.name] = handler
        if isinstance(handler, Completes):
            self._completable.append((function, handler))
        self.changed()

    def add_source(self, source: FileSource) -> None:
        """Read a source's files, and declare what they have, here and wherever these declarations are included.

        Raises:
            Mistake: they cannot be served, or a name is taken.
        """
        source.declarations = self
        source.stamped = source.stamp()
        source.load(source.read())
        self.file_sources.append(source)

    def swap(self, former: Sequence[Handler], new: Sequence[Handler]) -> None:
        """Declare handlers in place of former ones, all at once; a name that both have stays taken by them.

        Raises:
            Mistake: another name is taken, or there are too many; nothing has changed.
        """
        names = {(each.definition.kind, each.definition.name) for each in former}
        self.claim([each for each in new if (each.definition.kind, each.definition.name) not in names])
        for kind, name in names:
            self.own[kind].pop(name, None)
        for each in new:
            each.scope = self.scope
            self.own[each.definition.kind][each.definition.name] = each
        self.changed()

    def include(self, inner: Declarations, prefix: str, site: Site) -> None:
        """Let other declarations appear here, and wherever these are included.

        Raises:
            Mistake: they hold these, are included already, or a name among them is taken.
        """
        if not _PREFIX.fullmatch(prefix):
            raise Mistake(f"the prefix {prefix!r} must have only characters of A-Z a-z 0-9 _ - .")
        if any(each is inner for each in self.outer()):
            raise Mistake("a Router cannot include itself, nor one that includes it")
        for known in self.included:
            if known.inner is inner and known.prefix == prefix:
                raise Mistake(f"this Router is included already, by {known.site}: give the second one another prefix")
        if len({each.clean for each in (*self.outer(), *inner.parts())} - {ANY}) > 1:
            raise Mistake("one of these Apps has another `clean`: an App cleans all of its results alike (M40)")
        inclusion = Inclusion(inner, prefix, site)
        handlers = [handler for kind in KINDS for handler in inner.of(kind).values()]
        self.claim([inclusion.shown(handler) for handler in handlers], are_known=True)
        self.included.append(inclusion)
        if not any(each is self for each in inner.includers):
            inner.includers.append(self)
        self.changed()

    def remove(self, kind: Kind, name: str) -> None:
        """Remove a declaration, wherever it appears.

        Raises:
            LookupError: nothing of that kind and name was declared here itself.
        """
        gone = self.own[kind].pop(name, None) if kind in self.own else None
        if gone is None:
            inner = self.find(kind, name) if kind in self.own else None
            where = "" if inner is None else f" itself: remove it from the Router that declares {inner.site}"
            raise LookupError(f"this App declares no {kind} named {name!r}{where}")
        self._completable = [each for each in self._completable if each[1] is not gone]
        self.changed()

    def changed(self) -> None:
        """Tell the workers that serve these declarations that they have changed."""
        self._tell(Hosts.changed)

    def publish(self, uri: str) -> None:
        """Tell watchers of a URI, as `Hosts.publish`."""
        self._tell(lambda hosts: hosts.publish(uri))

    def tell(self, change: OwnChange) -> None:
        """Tell listeners of a key, as `Hosts.tell`."""
        self._tell(lambda hosts: hosts.tell(change))

    def resources_changed(self) -> None:
        """Tell listeners of lists, as `Hosts.resources_changed`."""
        self._tell(Hosts.resources_changed)

    def permits_changed(self, uris: frozenset[str]) -> None:
        """Tell edges that permits may decide otherwise now, as `Hosts.permits_changed`."""
        self._tell(lambda hosts: hosts.permits_changed(uris))

    def _tell(self, what: Callable[[Hosts], None]) -> None:
        for each in self.outer():
            what(each.hosts)

    def claim(self, handlers: Sequence[Handler], *, are_known: bool = False) -> None:
        """Check that further declarations may appear here, and wherever these appear.

        Args:
            handlers: the further declarations.
            are_known: they are declared already, so that a sentence on one must say where.

        Raises:
            Mistake: a name is taken, twice among them, or there are too many.
        """
        new: dict[tuple[Kind, str], Handler] = {}
        for handler in handlers:
            kind, name = handler.definition.kind, handler.definition.name
            taken = new.get((kind, name)) or self.find(kind, name)
            if taken is not None:
                raise Mistake(_clash(handler, taken, whose=f" of {handler.site}" if are_known else ""))
            new[kind, name] = handler
        if sum(len(each) for part in self.parts() for each in part.own.values()) + len(new) > MOST_DEFINITIONS:
            raise Mistake(f"an App has at most {MOST_DEFINITIONS} tools, resources and prompts")
        for includer in self.includers:
            includer.claim(
                [
                    inclusion.shown(handler)
                    for inclusion in includer.included
                    if inclusion.inner is self
                    for handler in handlers
                ],
                are_known=are_known,
            )


def _each_once(first: Declarations, following: Callable[[Declarations], Iterable[Declarations]]) -> list[Declarations]:
    """Return all that is reached from a first one, in the order of a walk."""
    found: dict[int, Declarations] = {}
    waiting = [first]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting.extend(reversed(list(following(each))))
    return list(found.values())


def _clash(handler: Handler, taken: Handler, *, whose: str) -> str:
    """Say who has a name already; without `whose`, the error names the other function itself."""
    kind, name = handler.definition.kind, handler.definition.name
    if taken.site == handler.site and whose:
        remedy = ", or under different prefixes" if kind in _NAMED else ": its URI takes no prefix"
        return f"the {kind} {name!r}{whose} would come twice: include its Router once{remedy}"
    return f"the {kind} name {name!r}{whose} is taken by {taken.site}"
