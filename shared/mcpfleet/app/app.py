"""An application: a Router with a name and a version, which workers serve."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from mcp_types import Icon

from mcpfleet.app.declaration import NoOptions, check_keywords, server_description
from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.extension import extensions_of
from mcpfleet.app.extension_names import check_identifier, check_settings
from mcpfleet.app.folder import Folder, Links, root_of
from mcpfleet.app.hosts import Hosts
from mcpfleet.app.localized import SOURCE, Localizer
from mcpfleet.app.outcome import without_controls
from mcpfleet.app.permit import Permitter
from mcpfleet.app.resource import Reads
from mcpfleet.app.router import Router
from mcpfleet.app.site import Site, installed_version
from mcpfleet.contracts.manifest import OWN_KINDS, Definition, Manifest, Translatable

if TYPE_CHECKING:
    from mcpfleet.app.languages import LanguageSource


class App(Router):
    """An application that workers serve: a Router with a name.

    Args:
        name: its name in `serverInfo`. Its pool is named after it.
        version: its version there. By default that of the installed distribution that has the name of the calling
            module's package, else "0.0.0".
        title: its name for people.
        description: what it does, for people who look at the server.
        icons: its images, at `https:` or `data:` URIs; 64 KiB at most, all together.
        website_url: its page on the web.
        instructions: how a model should use it.
        logs: whether handlers may log to their clients by `ctx.log`. False drops what they log, and takes the
            capability `logging` away (X66).
        ttl: seconds for which clients may keep lists and the answer of `server/discover`, by `discover`, `tools`,
            `prompts`, `resources` and `resourceTemplates`. The rest is the operators' (MCPFLEET_LIST_TTL,
            MCPFLEET_DISCOVER_TTL).
        clean: every text of a tool's result goes through it (M40). By default it takes out the control characters that
            a terminal would obey. None leaves texts as they are.
        lifespan: the same as `@app.lifespan`.
        experimental: what the server's capabilities advertise as experimental, by identifiers such as
            `com.example/beta`; nothing follows of it (X47).

    Raises:
        DeclarationError: the name or the version is empty, or an argument is unknown.
    """

    _may_lack_documents = False

    def __init__(
        self,
        name: str,
        *,
        version: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        website_url: str | None = None,
        instructions: str | None = None,
        logs: bool = True,
        ttl: Mapping[str, float] | None = None,
        clean: Callable[[str], str] | None = without_controls,
        lifespan: Callable[..., Any] | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        **unknown: Unpack[NoOptions],
    ) -> None:
        check_keywords("App", unknown, inspect.signature(App).parameters, Site.of_caller())
        super().__init__(lifespan=lifespan)
        if version is None:
            version = installed_version(Site.of_caller().module)
        if not name or not version:
            raise DeclarationError(f"an App needs a name and a version, not {name!r} and {version!r}")
        try:
            self._told = server_description(description, icons, website_url, ttl)
        except Mistake as mistake:
            raise DeclarationError(f"App({name!r}): {mistake.why}", Site.of_caller()) from None
        self.name = name
        self.version = version
        self.title = title
        self.instructions = instructions
        self.logs = logs
        self.clean = self.declared.clean = clean
        self._experimental = _checked_experimental(experimental, Site.of_caller())
        self._languages: LanguageSource | None = None

    @property
    def hosts(self) -> Hosts:
        """The workers that serve it now."""
        return self.declared.hosts

    def languages(
        self,
        folder: str,
        *,
        default: str = "en",
        domain: str = "messages",
        translate: Collection[Translatable] = (),
        package: str | None = None,
        links: Links = "refuse",
    ) -> None:
        """Declare the languages of the App: a gettext file each, such as `locale/de/LC_MESSAGES/shop.po`.

        Titles, questions and labels of forms are translated by these files, and what handlers give to `ctx.t`. The
        files are read here, and again when they change while a worker serves them (X7). `mcpfleet messages` writes the
        template for translators. A missing, empty or fuzzy translation leaves the source text.

        Args:
            folder: relative to the file that declares, or to the package.
            default: the tag of the language in which the App's texts are written.
            domain: the name of the files, without `.po`.
            translate: "descriptions" and "instructions" are translated only if they are named here, since models choose
                by them.
            package: an installed package that has the folder.
            links: "inside" takes links that stay below the folder, as in a volume of a Kubernetes ConfigMap.

        Raises:
            DeclarationError: they are declared already, Babel is missing, or a file cannot be used; the error names the
                file and the line.
        """
        site = Site.of_caller()
        if self._languages is not None:
            raise DeclarationError(f"languages are declared already: {self._languages.site}", site)
        from mcpfleet.app.languages import LanguageSource  # noqa: PLC0415  # few Apps have languages

        try:
            root = Folder(root_of(site, package) / folder, links)
            source = LanguageSource(root, site, default=default, domain=domain, translate=translate)
            self.declared.add_source(source)
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from None
        self._languages = source

    def texts(self, language: str | None = None) -> Localizer:
        """Return what translates a handler's texts, for a test without a fleet: `Context(texts=app.texts("de"))`.

        Args:
            language: a preference as `Accept-Language` has it; None for the default language.
        """
        return SOURCE if self._languages is None else self._languages.texts(language)

    def run(
        self,
        transport: Literal["http", "stdio"] = "http",
        *,
        host: str | None = None,
        port: int | None = None,
        edges: int | None = None,
        workers: int = 1,
        reload: bool | None = None,
    ) -> None:
        """Run the whole system until it is told to end: for `if __name__ == "__main__":` at the end of a module.

        Workers import the module again, in processes of their own. So the App needs a name at the module's top level,
        and the call must not run at an import.

        Args:
            transport: "http" does what `mcpfleet dev` does, "stdio" what `mcpfleet stdio` does, for desktop clients.
            host: the address that edges listen on, for "http"; 127.0.0.1 by default.
            port: the first edge's port, for "http"; 8000 by default, and 0 takes free ones.
            edges: the number of edges, for "http"; 1 by default.
            workers: the number of workers.
            reload: restart the workers when a Python file changes; by default with "http" alone.

        Raises:
            RunError: the workers could not find the App, or this is no place to run it.
            ValueError: the transport is unknown, or an option does not belong to it.
            SystemExit: the application could not start; standard error says why.
        """
        from mcpfleet.app.run import run  # noqa: PLC0415  # it looks for Apps in modules

        options = {"host": host, "port": port, "edges": edges}
        if transport not in {"http", "stdio"}:
            raise ValueError(f"unknown transport {transport!r}: use 'http' or 'stdio'")
        if transport == "stdio" and (given := [name for name, value in options.items() if value is not None]):
            raise ValueError(f"{', '.join(given)}: only for the transport 'http', since 'stdio' has no address")
        run(self, transport, {**options, "workers": workers, "reload": reload})

    def manifest(self) -> Manifest:
        """Return the manifest that a worker announces: its definitions by kind and name."""
        return Manifest(
            name=self.name,
            version=self.version,
            title=self.title,
            instructions=self.instructions,
            logs=self.logs,
            languages=None if self._languages is None else self._languages.languages,
            **self._told,
            definitions=tuple(each.definition.text for each in self.handlers if each.definition.kind not in OWN_KINDS),
            extensions=self._extension_texts(),
        )

    @property
    def permitters(self) -> list[Permitter]:
        """All that has a permit; for the package's own use."""
        told = [each for extension in extensions_of(self.declared) for each in extension.notifications]
        found: list[Permitter] = [each for each in self.handlers if isinstance(each, Reads)]
        return [each for each in (*found, *told) if each.definition.permit]

    def _extension_texts(self) -> tuple[str, ...]:
        """Return the texts of all that belongs to own extensions, by kind and name."""
        own = [each.definition for each in self.handlers if each.definition.kind in OWN_KINDS]
        own += [each for extension in extensions_of(self.declared) for each in extension.definitions]
        own += [Definition(kind="experimental", name=name, wire=wire) for name, wire in self._experimental.items()]
        return tuple(each.text for each in sorted(own, key=lambda each: (each.kind, each.name)))


def _checked_experimental(experimental: object, site: Site) -> dict[str, dict[str, Any]]:
    """Return what an App advertises as experimental."""
    if experimental is None:
        return {}
    if not isinstance(experimental, Mapping):
        raise DeclarationError("experimental is a dict of identifiers with the settings of each", site)
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, settings in experimental.items():
            check_identifier(name)
            found[name] = check_settings(f"experimental[{name!r}]", settings)
    except Mistake as mistake:
        raise DeclarationError(mistake.why, site) from mistake.__cause__
    return found
