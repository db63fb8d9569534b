"""Routers: the declarations of a module, by decorators."""

# Longer than 400 lines: an author's one class, whose decorators are described at length where editors show it.

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import MappingProxyType
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar, Unpack, cast

from mcp_types import Annotations, ToolAnnotations

from mcpfleet.app.arguments import arguments_for
from mcpfleet.app.completion import Completer, Completes
from mcpfleet.app.declaration import (
    OPTIONS,
    Declaration,
    NoOptions,
    Options,
    check_keywords,
    check_ttl,
)
from mcpfleet.app.declared import KINDS, Declarations
from mcpfleet.app.dependency import DependencyPlan, replacement
from mcpfleet.app.document import UiDocument, document_file
from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.extension import Extension
from mcpfleet.app.extension import add as add_extension
from mcpfleet.app.file_source import FileSource
from mcpfleet.app.folder import Folder, Links, root_of
from mcpfleet.app.function import is_async
from mcpfleet.app.handler import Handler, Interceptor, Sanitizer
from mcpfleet.app.hosts import Watcher
from mcpfleet.app.inspection import with_visible_questions
from mcpfleet.app.lifespan import LifespanFunction, Lifespans, LifespanValues
from mcpfleet.app.notification import Notification
from mcpfleet.app.permit import Permit, Permitting, Readable, show_face
from mcpfleet.app.prompt import Prompt
from mcpfleet.app.resource import Lister, Reads, Resource, Template
from mcpfleet.app.result import Returns
from mcpfleet.app.signature import Signature, read_signature
from mcpfleet.app.site import Site
from mcpfleet.app.step_up import ScopesIf
from mcpfleet.app.task import TaskOptions
from mcpfleet.app.tool import Tool
from mcpfleet.app.ui import Csp, DocumentOptions, Ui, check_document_uri, check_no_package, check_visible, tool_members
from mcpfleet.contracts.apps import is_ui, ui_of
from mcpfleet.contracts.hints import check_published
from mcpfleet.contracts.manifest import Definition, Kind, Tasking
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY

Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
Around = TypeVar("Around", bound=Interceptor)
Observing = TypeVar("Observing", bound=Callable[[Any], Any])
Watching = TypeVar("Watching", bound=Callable[[frozenset[str]], Any])
Opening = TypeVar("Opening", bound=Callable[..., Any])


class Router:
    """Declarations of one module, which an App includes: `app.include(router)`.

    A Router declares all that an App declares, by the same decorators. Its interceptors run around its own handlers
    alone. Its lifespan is for its own handlers too; without one they receive that of the App.

    Args:
        lifespan: the same as `@router.lifespan`.
    """

    _may_lack_documents: ClassVar[bool] = True
    """Whether a tool may name a document that is declared later, where the Router is included."""

    def __init__(self, *, lifespan: Callable[..., Any] | None = None, **unknown: Unpack[NoOptions]) -> None:
        check_keywords("Router", unknown, {"lifespan"}, Site.of_caller())
        self.declared = Declarations()
        """Its declarations, and those that it includes; for the package's own use."""
        if lifespan is not None:
            self.lifespan(lifespan)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The declared tools by name; read-only, as the other views are."""
        return MappingProxyType(cast("dict[str, Tool]", self.declared.of("tool")))

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The declared prompts by name."""
        return MappingProxyType(cast("dict[str, Prompt]", self.declared.of("prompt")))

    @property
    def reads(self) -> Mapping[str, Resource | Template]:
        """The declared resources by their URIs, and templates by their texts."""
        found = self.declared.of("resource") | self.declared.of("template")
        return MappingProxyType(cast("dict[str, Resource | Template]", found))

    @property
    def handlers(self) -> list[Handler]:
        """All declarations, by kind and name, with the included ones."""
        declared = [handler for kind in KINDS for handler in self.declared.of(kind).values()]
        return sorted(declared, key=lambda each: (each.definition.kind, each.definition.name))

    @property
    def interceptors(self) -> tuple[Interceptor, ...]:
        """The functions around every handler, the outermost first, without those of included Routers."""
        return tuple(self.declared.interceptors)

    @property
    def observers(self) -> tuple[Callable[[Any], Any], ...]:
        """The functions that are told what happens in its workers."""
        return tuple(observer for part in self.declared.parts() for observer in part.observers)

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """The functions that are told which URIs clients watch."""
        return tuple(watcher for part in self.declared.parts() for watcher in part.watchers)

    @property
    def file_sources(self) -> tuple[FileSource, ...]:
        """The sources of its declarations from files, with the included ones."""
        return tuple(source for part in self.declared.parts() for source in part.file_sources)

    def tool(
        self,
        name: str | None = None,
        *,
        annotations: ToolAnnotations | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        ui: Ui | Callable[..., Any] | str | None = None,
        visibility: Collection[Literal["model", "app"]] | None = None,
        rate: tuple[int, float] | None = None,
        scopes_if: ScopesIf | None = None,
        sanitize: Sanitizer | None = None,
        task: Tasking | None = None,
        run_limit: float = 3600.0,
        retention: float = 3600.0,
        idempotency_key: str | Literal[True] | None = None,
        again_is_safe: bool = False,
        **options: Unpack[Options],
    ) -> Callable[[Function], Function]:
        """Declare a function as a tool; used as `@app.tool()`. The function itself stays as it is.

        Its parameters give the input schema. Each needs an annotation, and `Annotated[…, Field(description=…)]`
        describes it; other arguments are refused. A parameter annotated with `Context` receives the call. The return
        annotation gives the output schema. An `async` function runs on the handlers' event loop, a plain one in a
        thread.

        Args:
            name: 1 to 128 characters of A-Z a-z 0-9 _ - . (M36); the function's own by default.
            annotations: hints for clients, for example `ToolAnnotations(read_only_hint=True)`.
            input_schema: the schema of the arguments, instead of the parameters. The function then takes all arguments
                as the one parameter `arguments: dict[str, Any]`. It is read as JSON Schema 2020-12, unless its
                `$schema` names 2019-09 or draft 7, 6 or 4. No `$ref` may lead out of it.
            output_schema: the schema of the result, instead of the return annotation's.
            structured: False sends data as text alone, without an output schema.
            ui: the document in which hosts with MCP Apps show its results: what `app.ui` returned, the function that
                makes it, or its URI. All others get the text (X10).
            visibility: who may see it: "model", "app" (documents) or both, which is the default. It gives no right.
            rate: `(calls, seconds)`: how often a caller, or its tenant, may call it.
            scopes_if: further scopes, each with a JSON Schema: a call whose arguments fit the schema needs the scope
                too. An absent argument counts by its default. `ctx.need` asks for scopes that code alone knows (X55).
            sanitize: takes the function's result and the call's Context, and returns the part that this caller may see.
                It implies `per_caller`, and the output schema is checked after it. A task's result goes through it at
                each read, for each reader (K13).
            task: "required" makes a durable task of every call, and refuses clients without tasks. With "optional",
                `ctx.defer()` decides while the call runs. A task's handler may run again from its top, on another
                worker: its steps are remembered, and its questions are not asked again.
            run_limit: seconds that a task may run, without the waits for its client; `timeout` is for calls.
            retention: seconds that a task can be read after its end.
            idempotency_key: the argument whose value identifies a repeat. A repeat gets the first call's result, or its
                task's handle, and nothing runs again (D9). With True no argument is the key: the client names it in the
                request's `_meta`, as `io.mcpfleet/idempotency-key`. Such a tool goes on when its client leaves, unless
                `on_disconnect` says otherwise, so that a retry gets its result.
            again_is_safe: a call with an uncertain outcome may run again under its key.
            options: the options of every kind, see `Options`.

        Raises:
            DeclarationError: at the declaration, if it breaks a rule; the error names the function, its file and line,
                and the parameter.
        """

        def make(handler: Callable[..., Any]) -> Tool:
            signature = read_signature(handler)
            if idempotency_key is not None:
                options.setdefault("on_disconnect", "continue")
            if idempotency_key is True:  # so that clients know it
                options["meta"] = {**(options.get("meta") or {}), IDEMPOTENCY_KEY: True}
            chosen = Site.of(handler).name if name is None else name
            of_apps = tool_members(None if ui is None else self._document_uri(ui), visibility)
            tool = Tool(
                handler,
                Declaration(kind="tool", name=chosen, ui=of_apps, **_asking(options, handler, signature)),
                arguments_for(signature, input_schema),
                Returns(signature.returns, output_schema, structured=structured),
                signature,
                annotations=annotations,
                rate=rate,
                scopes_if=scopes_if,
                sanitize=sanitize,
                tasking=TaskOptions(
                    task=task, run_limit=run_limit, retention=retention,
                    idempotency_key=idempotency_key, again_is_safe=again_is_safe,
                ),
            )  # fmt: skip
            self._check_document(tool.definition, may_lack=self._may_lack_documents)
            return tool

        return self._declaring("tool", name, make, options)

    def prompt(self, name: str | None = None, **options: Unpack[Options]) -> Callable[[Function], Function]:
        """Declare a function as a prompt; used as `@app.prompt()`.

        Its parameters are the arguments. They are texts on the wire, parsed to the declared types, and required unless
        they have a default (M41). It returns a text or a content block (a user's message), a message that
        `mcpfleet.app.message` makes, or a list of these.

        Args:
            name: 1 to 128 characters of A-Z a-z 0-9 _ - . (M36); the function's own by default.
            options: the options of every kind, see `Options`.

        Raises:
            DeclarationError: a rule is broken.
        """

        def make(handler: Callable[..., Any]) -> Prompt:
            chosen, signature = Site.of(handler).name if name is None else name, read_signature(handler)
            declaration = Declaration(kind="prompt", name=chosen, **_asking(options, handler, signature))
            return Prompt(handler, declaration, signature)

        return self._declaring("prompt", name, make, options)

    def resource(
        self,
        uri: str,
        name: str | None = None,
        *,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        size: int | None = None,
        ttl: float = 0.0,
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, R]], Readable[P, R]]:
        """Declare a function as a resource; used as `@app.resource("library://books")`.

        A URI with variables is a template: `library://books/{book}` takes one part of the URI, and `{+path}` at the end
        takes the rest. The function's parameters are the variables, parsed to their types. A value that does not parse
        is not found (M42). Neither is a value with `..` among its parts, nor an absolute path in `file:` (M43). The
        function returns a text, bytes, contents blocks (one, or a list), `None` for nothing, or data, which becomes
        JSON. The function itself stays as it is; `@function.permit` declares who may read (see `permit`).

        Args:
            uri: absolute and normalized (RFC 3986), or a template (RFC 6570).
            name: for programs; the function's own by default.
            mime_type: the media type of the content; by default that of the return annotation.
            annotations: hints for clients, for example `Annotations(priority=1)`.
            size: bytes of the content, if known.
            ttl: seconds for which a client may keep the content.
            options: the options of every kind, see `Options`.

        Raises:
            DeclarationError: a rule is broken.
        """
        given: object = uri  # the function itself, if the parentheses were forgotten
        is_template = "{" in str(uri)

        def make(handler: Callable[..., Any]) -> Resource | Template:
            check_ttl(ttl)
            signature, chosen = read_signature(handler), name or Site.of(handler).name
            kind: Kind = "template" if is_template else "resource"
            declaration = Declaration(kind=kind, name=uri, **_asking(options, handler, signature))
            said: dict[str, Any] = {"name": chosen, "mime_type": mime_type, "annotations": annotations, "ttl": ttl}
            if not is_template:
                return Resource(handler, declaration, signature, size=size, **said)
            if size is not None:
                raise Mistake("a template has no size: each resource that matches it has its own")
            return Template(handler, declaration, signature, **said)

        declare = self._declaring("resource", None if isinstance(given, str) else given, make, options)

        def declare_readable(handler: Callable[P, R]) -> Readable[P, R]:
            declare(handler)
            show_face(handler, self.permit(uri))
            return cast("Readable[P, R]", handler)

        return declare_readable

    def permit(self, of: Callable[..., Any] | str) -> Callable[[Permitting], Permitting]:
        """Declare a function that decides who may read a resource; used as `@app.permit(account)`.

        `@account.permit` is the same, below the declaration of the function `account`.

        It takes the caller and a list of what it asks for: the variables of each URI, with the URI as their attribute
        `uri`. It returns a list with True for what this caller may read, and False for what does not exist for it.
        Anything else is no answer: reads get 504, and streams hear nothing. It takes at most 5 s.

        It decides before each read, listen and subscription, before a change is told, and about completed values. It
        runs outside of interceptors, and takes no slot. An async function runs on the handlers' event loop, a plain one
        in a thread. It implies `per_caller`.

        Args:
            of: the function of an earlier declared resource or template, its URI, or the template's text.

        Raises:
            DeclarationError: there is no such resource, it has a permit, or the function takes other parameters.
        """

        def declare(function: Permitting) -> Permitting:
            site = Site.of(function)
            try:
                permit = Permit(function)
                for each in self._find_reads(of):
                    each.permit_by(permit)
            except Mistake as mistake:
                raise DeclarationError(mistake.why, site, mistake.parameter) from mistake.__cause__
            self.declared.changed()
            return function

        return declare

    def resources(
        self, name: str | None = None, *, ttl: float | None = None, **options: Unpack[Options]
    ) -> Callable[[Function], Function]:
        """Declare a function that lists resources without declarations; used as `@app.resources()`.

        It returns a list of `Resource`, or a `Page` of it. A parameter `cursor: str | None` takes the place to go on
        at.

        Args:
            name: names the list in logs; the function's own by default.
            ttl: seconds for which a client may keep what it lists; as for other resources by default.
            options: the options of every kind, see `Options`.

        Raises:
            DeclarationError: a rule is broken.
        """

        def make(handler: Callable[..., Any]) -> Lister:
            chosen, signature = Site.of(handler).name if name is None else name, read_signature(handler)
            declaration = Declaration(kind="lister", name=chosen, **_asking(options, handler, signature))
            return Lister(handler, declaration, signature, ttl=ttl)

        return self._declaring("resources", name, make, options)

    def skills(
        self,
        folder: str,
        *,
        package: str | None = None,
        prefix: str = "",
        only_for: Collection[str] = (),
        scopes: Collection[str] = (),
        links: Links = "refuse",
    ) -> None:
        """Declare the skills of a folder: each folder below it that has a SKILL.md, at any depth.

        Their files are read here, and again when they change while a worker serves them (X7). Edges answer for them:
        no handler and no interceptor runs.

        Args:
            folder: relative to the file that declares, or to the package.
            package: an installed package that has the folder.
            prefix: the beginning of their paths: "acme" gives `skill://acme/NAME/SKILL.md`.
            only_for: the callers for whom they exist, as for every declaration.
            scopes: the scopes that a caller needs.
            links: "inside" takes links that stay below the folder, as in a volume of a Kubernetes ConfigMap.

        Raises:
            DeclarationError: a skill breaks the Agent Skills specification, or its frontmatter is read differently by
                different readers; the error names the file and the line.
        """
        site = Site.of_caller()
        try:
            from mcpfleet.app.skills import SkillSource, warn_of_equal_names  # noqa: PLC0415  # it needs PyYAML

            root = Folder(root_of(site, package) / folder, links)
            self.declared.add_source(SkillSource(root, site, prefix=prefix, only_for=only_for, scopes=scopes))
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from None
        warn_of_equal_names([handler.definition for handler in self.declared.of("resource").values()])

    def ui(
        self,
        uri: str,
        name: str | None = None,
        *,
        file: str | None = None,
        package: str | None = None,
        links: Links = "refuse",
        csp: Csp | None = None,
        permissions: Collection[str] = (),
        domain: str | None = None,
        border: bool | None = None,
        listed: bool = True,
        ttl: float = 0.0,
        **options: Unpack[Options],
    ) -> Ui:
        """Declare a document that hosts with MCP Apps show: a file, or what a function makes.

        `board = app.ui("ui://shop/board", file="board.html")` declares a file; edges answer for it without a worker. As
        `@app.ui("ui://shop/report")` it declares a function that returns HTML. Tools name it by `ui=`.

        Args:
            uri: an exact `ui://` URI.
            name: for programs; that of the file or the function by default.
            file: the file's path, relative to the file that declares, or to the package.
            package: an installed package that has the file.
            links: "inside" takes links that stay below the folder, as in a volume of a Kubernetes ConfigMap.
            csp: the origins that the document may use; none by default.
            permissions: of "camera", "microphone", "geolocation" and "clipboard-write".
            domain: the origin that the document wants for itself, in the form of the host that shows it.
            border: whether the host draws a border and a background; the host decides by default.
            listed: False keeps it out of lists; it can be read all the same.
            ttl: seconds for which a client may keep it.
            options: the options of every kind, see `Options`. Those of functions are none of a file's.

        Raises:
            DeclarationError: a rule is broken, or the file cannot be read.
        """
        site = Site.of_caller()
        _check_options("app.ui()", "ui", options, site)
        try:
            said = DocumentOptions(uri=uri, csp=csp, permissions=permissions, domain=domain, border=border)
            check_ttl(ttl)
            if file is None:
                check_no_package(package)
                return Ui(uri, self._declaring_document(said, name, options, ttl=ttl, unlisted=not listed))
            members = {"name": uri, "ui": said.members(), **options}
            root = Folder(root_of(site, package), links)
            self.declared.add_source(document_file(root, file, site, members, name=name, ttl=ttl, unlisted=not listed))
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from None
        return Ui(uri, None)

    def _declaring_document(
        self, said: DocumentOptions, name: str | None, options: Options, *, ttl: float, unlisted: bool
    ) -> Callable[[Callable[..., Any]], Any]:
        """Return what declares the function that makes a document."""

        def make(handler: Callable[..., Any]) -> UiDocument:
            signature, chosen = read_signature(handler), name or Site.of(handler).name
            asking = _asking(options, handler, signature)
            declaration = Declaration(kind="resource", name=said.uri, ui=said.members(), **asking)
            return UiDocument(handler, declaration, signature, name=chosen, ttl=ttl, unlisted=unlisted)

        return self._declaring("ui", None, make, options)

    def _document_uri(self, ui: Ui | Callable[..., Any] | str) -> str:
        """Return the URI of a tool's document."""
        if isinstance(ui, Ui):
            return ui.uri
        if isinstance(ui, str):
            check_document_uri(ui)
            return ui
        for found in self.declared.find_reads(ui):
            if is_ui(found.definition):
                return found.definition.name
        raise Mistake(f"ui is {ui!r}, which is no document of this App: declare it by `app.ui` first")

    def _check_document(self, tool: Definition, *, may_lack: bool) -> None:
        """Check the document of a tool that has one."""
        uri = (ui_of(tool) or {}).get("resourceUri")
        if uri is None:
            return
        document = self.declared.find("resource", uri)
        if document is not None or not may_lack:
            check_visible(tool, None if document is None else document.definition, uri)

    def check_documents(self) -> None:
        """Check the documents of all tools, once all is declared (X10).

        Raises:
            DeclarationError: a tool's document is none of this App, or more hidden than the tool.
        """
        for tool in self.tools.values():
            try:
                self._check_document(tool.definition, may_lack=False)
            except Mistake as mistake:
                raise DeclarationError(mistake.why, tool.site) from None

    def completion(self, of: Callable[..., Any] | str, argument: str) -> Callable[[Function], Function]:
        """Declare a function that completes what a user types; used as `@app.completion(review, "title")`.

        It takes the typed text, and perhaps the settled arguments as `dict[str, str]`. It returns a list of texts, or a
        `Completion` with its total (M48).

        Args:
            of: the function of an earlier declared prompt or template, a prompt's name, or a template's text.
            argument: the argument of the prompt, or the variable of the template.

        Raises:
            DeclarationError: there is no such prompt, template or argument.
        """

        def declare(handler: Function) -> Function:
            site = Site.of(handler)
            try:
                completer = Completer(handler)
                completer.declare_in(self.declared.scope)
                self._find_completable(of).complete_with(argument, completer)
                self.declared.changed()
            except Mistake as mistake:
                raise DeclarationError(mistake.why, site, mistake.parameter) from mistake.__cause__
            return handler

        return declare

    def interceptor(self, function: Around) -> Around:
        """Run an async function around every handler; used as `@app.interceptor`.

        That of a Router runs around the Router's own handlers, within those of the App that includes it.

        It takes an `Invocation` and `call_next`. It returns the result of `await call_next(invocation)`, or another
        result in its place. It runs before the arguments are checked. The first declared interceptor is the outermost.

        Raises:
            DeclarationError: it is not async.
        """
        if not is_async(function):
            raise DeclarationError("an interceptor is an async function", Site.of(function))
        self.declared.interceptors.append(function)
        return function

    def lifespan(self, function: Opening) -> Opening:
        """Declare what each worker opens before its first call, and closes after its last; used as `@app.lifespan`.

        The function is async and yields once, with or without `@asynccontextmanager`; it may take the App. It runs on
        the handlers' event loop. A worker enters it before it announces itself, within 30 s, and leaves it in its
        drain, within 10 s (X68). Parameters annotated with `Lifespan[…]` receive what it yields. If it cannot be
        entered, the worker ends with exit code 1. If it fails later, the worker drains first.

        Raises:
            DeclarationError: there is a lifespan already, or the function is none.
        """
        lifespan, held = LifespanFunction(function), self.declared.scope.lifespan
        if held is not None:
            why = f"the lifespan {held.site} is declared already: enter one inside of the other"
            raise DeclarationError(why, lifespan.site)
        self.declared.scope.lifespan = lifespan
        return function

    def override(self, function: Callable[..., Any], other: Callable[..., Any]) -> AbstractContextManager[None]:
        """Let another function stand for a dependency, or for a lifespan, inside of a `with` block of a test.

        Args:
            function: what `Depends` names, or what is declared as the lifespan.
            other: takes its place, under the same rules; a lambda without parameters may do. A lifespan's counts for
                workers that start inside of the block.

        Raises:
            LookupError: no handler depends on the function, and it is no lifespan here.
            DeclarationError: the other one cannot be used as such.
        """
        scopes = [part.scope for part in self.declared.parts()]
        plans = [handler.plan for handler in self.handlers if handler.plan is not None]
        if any(scope.lifespan is not None and scope.lifespan.function == function for scope in scopes):
            LifespanFunction(other)
        elif any(function == known for plan in plans for known, _ in plan.functions()):
            replacement(other)
        else:
            raise LookupError(f"no handler of this App depends on {Site.of(function)}, and it is no lifespan here")
        return self.declared.scope.override(function, other)

    def lifespans(self) -> Lifespans:
        """Return the lifespans here and of what is included, for one worker to run.

        Raises:
            DeclarationError: a handler takes `Lifespan[…]`, and none is declared for it.
        """
        scopes = {part.scope: part.scope.chosen_lifespan() for part in self.declared.parts()}
        declared = {scope: lifespan for scope, lifespan in scopes.items() if lifespan is not None}
        for handler in self.handlers:
            takes = handler.plan is not None and handler.plan.takes_lifespan
            if takes and declared.keys().isdisjoint(handler.scope.outer()):
                why = "takes `Lifespan[…]`, and its App has no lifespan: declare one by @app.lifespan"
                raise DeclarationError(why, handler.site)
        return Lifespans(declared.items(), self)

    def entered(self) -> AbstractAsyncContextManager[LifespanValues]:
        """Enter the lifespans for a test without a fleet: `async with app.entered() as lifespan`.

        `Context(lifespan=lifespan)` then gives their values to handlers.

        Raises:
            DeclarationError: a handler takes `Lifespan[…]`, and none is declared for it.
            LifespanFailed: one could not be entered or left.
        """
        return self.lifespans().entered()

    def watched(self, function: Watching) -> Watching:
        """Tell a function which of the app's URIs clients watch, anywhere in the fleet; used as `@app.watched`.

        It takes a `frozenset[str]` with all of them, each time that the set changes. An async function runs on the
        handlers' event loop, a plain one in a thread; the next set waits until it returns. Declare it before a worker
        serves the app.
        """
        self.declared.watchers.append(Watcher(function))
        return function

    def observer(self, function: Observing) -> Observing:
        """Tell a function what happens in the workers that serve this App; used as `@app.observer` (X69).

        It takes a frozen event of `mcpfleet.app.events`: the worker, a call, or an attempt of a task began or ended. It
        runs in a thread of its own; an async one on an event loop there. It has 5 s. Up to 1,024 events wait for it;
        further ones are dropped and counted, and no call waits for it. Declare it before a worker serves the App.
        """
        self.declared.observers.append(function)
        return function

    def remove(self, kind: Kind, name: str) -> None:
        """Remove a declaration, even while it is served: listening clients hear that the list has changed.

        Running calls go on; later calls fail as calls of an unknown name.

        Args:
            kind: "tool", "prompt", "resource", "template" or "lister".
            name: the tool's or prompt's name, the resource's URI, the template, or the list's name.

        Raises:
            LookupError: nothing of that kind and name is declared.
        """
        self.declared.remove(kind, name)

    def publish(self, uri: str) -> None:
        """Tell the clients that watch a resource that it has changed; outside of a call, and on any thread.

        This is a hint, which may be lost or doubled: a client that gets it reads again.

        Args:
            uri: the URI that clients read.

        Raises:
            BadUri: it is not absolute and normalized (S5).
        """
        self.declared.publish(uri)

    def resources_changed(self) -> None:
        """Tell the clients that listen to lists that `@app.resources()` functions return something else.

        Callable outside of a call, and on any thread. This is a hint: a client that gets it lists again. Declarations
        and removals are told without this.
        """
        self.declared.resources_changed()

    def permits_changed(self, *uris: str) -> None:
        """Tell all edges that permits may decide otherwise now; callable on any thread, for example after a write.

        No stream hears of the URIs any more until their permits were asked again (X52). Several calls within a second
        are one.

        Args:
            uris: the URIs that are concerned, as clients read them; none for all of this App's, and all keys of its
                own notifications.

        Raises:
            BadUri: one is not absolute and normalized.
        """
        for uri in uris:
            check_published(uri)
        self.declared.permits_changed(frozenset(uris))

    def include(self, router: Router, *, prefix: str = "") -> None:
        """Let the declarations of a Router, or of another App, appear here too; used as `app.include(billing)`.

        What the Router declares or removes later appears or goes here as well. The name, version and texts of an
        included App do not count: the including App's do. May be called while the App is served.

        Args:
            router: a Router or an App; it may be included in several Apps.
            prefix: stands before the names of its tools, prompts and lists. URIs stay as they are.

        Raises:
            DeclarationError: a name or a URI is taken, this Router is included already, they include each other, or an
                included App has another `clean`.
        """
        site = Site.of_caller()
        given: object = router
        if not isinstance(given, Router):
            raise DeclarationError(f"include takes a Router or an App, not {type(given).__name__}", site)
        try:
            self.declared.include(router.declared, prefix, site)
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from None

    def add(self, extension: Extension) -> None:
        """Serve an extension of your own here, and wherever this is included; without it, it is off (X41).

        What it declares later appears, too.

        Raises:
            DeclarationError: it is added already, or a name of it is taken.
        """
        site, given = Site.of_caller(), cast("object", extension)
        if not isinstance(given, Extension):
            raise DeclarationError(f"add takes an Extension, not {type(given).__name__}: Routers are included", site)
        try:
            add_extension(self.declared, extension, site)
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from None

    def tell(self, notification: Notification, key: str) -> None:
        """Tell the clients whose filter has a key that it has changed; outside of a call, and on any thread.

        This is a hint, which may be lost or doubled: a client that gets it looks again.

        Raises:
            AskError: as `Context.tell`.
        """
        self.declared.tell(notification.change(key))

    def _declaring(
        self, what: str, first: object, make: Callable[[Callable[..., Any]], Handler], options: Options
    ) -> Callable[[Function], Function]:
        """Return the decorator that declares a function as one of a kind."""
        if callable(first):
            raise DeclarationError(f"write `@app.{what}()`, with parentheses", Site.of(first))

        def declare(handler: Function) -> Function:
            _check_options(f"@app.{what}()", what, options, Site.of(handler))
            try:
                self.declared.add(handler, make(handler))
            except Mistake as mistake:
                raise DeclarationError(mistake.why, Site.of(handler), mistake.parameter) from mistake.__cause__
            return handler

        return declare

    def _find_reads(self, of: object) -> list[Reads]:
        found = self.declared.find_reads(of)
        if not found:
            raise Mistake(f"{of!r} is no resource or template of this App; declare it first")
        return found

    def _find_completable(self, of: object) -> Completes:
        found = self.declared.find_completable(of)
        if found is None:
            raise Mistake(f"{of!r} is neither a prompt nor a template of this App; declare it first")
        return found


def _check_options(shown: str, what: str, options: Options, site: Site) -> None:
    """Check that a declaration has no unknown argument, which its method takes among the options."""
    if options.keys() - OPTIONS:
        own = inspect.signature(getattr(Router, what)).parameters
        check_keywords(shown, options, {*own, *OPTIONS} - {"self", "options"}, site)


def _asking(options: Options, handler: Callable[..., Any], signature: Signature) -> Options:
    plan = DependencyPlan.of(signature)
    dependencies = plan.functions() if plan is not None else ()
    return with_visible_questions(options, [(handler, signature.context), *dependencies])
