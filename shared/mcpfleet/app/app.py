"""An application: a name, a version, and the tools that it offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from mcp_types import Icon, ToolAnnotations

from mcpfleet.app.arguments import arguments_for
from mcpfleet.app.declaration import Declaration, OnDisconnect
from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.result import Returns
from mcpfleet.app.signature import read_signature
from mcpfleet.app.site import Site
from mcpfleet.app.tool import Tool
from mcpfleet.contracts.manifest import MOST_DEFINITIONS, Manifest

Handler = TypeVar("Handler", bound=Callable[..., Any])


class App:
    """An application that workers serve.

    Args:
        name: its name in `serverInfo`.
        version: its version there.
        title: its name for people.
        instructions: how a model should use it.

    Raises:
        DeclarationError: the name or the version is empty.
    """

    def __init__(self, name: str, *, version: str, title: str | None = None, instructions: str | None = None) -> None:
        if not name or not version:
            raise DeclarationError(f"an App needs a name and a version, not {name!r} and {version!r}")
        self.name = name
        self.version = version
        self.title = title
        self.instructions = instructions
        self._tools: dict[str, Tool] = {}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The declared tools by name; read-only."""
        return MappingProxyType(self._tools)

    def tool(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        timeout: float = 60.0,
        on_disconnect: OnDisconnect = "cancel",
        asks: Collection[str] = (),
        scopes: Collection[str] = (),
    ) -> Callable[[Handler], Handler]:
        """Declare a function as a tool; used as `@app.tool()`. The function itself stays as it is.

        Its parameters give the input schema: each needs an annotation, `Annotated[…, Field(description=…)]` describes
        it, and arguments beyond them are refused. One annotated with `Context` receives the call. The return
        annotation gives the output schema. An `async` function runs on the handlers' event loop, a plain one in a
        thread.

        Args:
            name: 1 to 128 characters of A-Z a-z 0-9 _ - . (M36); the function's own by default.
            title: the name for people.
            description: what it does, for the model; the docstring by default.
            annotations: hints for clients, for example `ToolAnnotations(read_only_hint=True)`.
            icons: https or data URIs (M28).
            meta: members of the declaration's `_meta`.
            input_schema: the arguments' schema, instead of the parameters; the function then takes all of them as the
                one parameter `arguments: dict[str, Any]`. It is read as JSON Schema 2020-12, unless its `$schema` names
                2019-09 or draft 7, 6 or 4; no `$ref` may lead out of it.
            output_schema: the result's schema, instead of the return annotation's.
            structured: False sends data as text alone, without an output schema.
            timeout: seconds that a call may take, whatever progress it reports; at most a day.
            on_disconnect: whether a client that leaves stops the work; "continue" declares that nothing does (D12).
            asks: what the handler may ask of the client: "elicitation.form", "elicitation.url", "sampling",
                "sampling.tools" or "roots" (D16).
            scopes: what a caller's token needs.

        Raises:
            DeclarationError: when the function is declared, if a rule is broken; it names the function, its file and
                line, and the parameter.
        """
        if callable(name):
            raise DeclarationError("write `@app.tool()`, with parentheses", Site.of(name))

        def declare(handler: Handler) -> Handler:
            site = Site.of(handler)
            try:
                signature = read_signature(handler)
                declaration = Declaration(
                    name=site.name if name is None else name,
                    title=title,
                    description=description,
                    annotations=annotations,
                    icons=icons,
                    meta=meta,
                    timeout=timeout,
                    on_disconnect=on_disconnect,
                    asks=asks,
                    scopes=scopes,
                )
                arguments = arguments_for(signature, input_schema)
                returns = Returns(signature.returns, output_schema, structured=structured)
                self._add(Tool(handler, declaration, arguments, returns, signature.context))
            except Mistake as mistake:
                raise DeclarationError(mistake.why, site, mistake.parameter) from mistake.__cause__
            return handler

        return declare

    def manifest(self) -> Manifest:
        """Compose what a worker of this application announces: its tools by name."""
        return Manifest(
            name=self.name,
            version=self.version,
            title=self.title,
            instructions=self.instructions,
            definitions=tuple(self._tools[name].definition.text for name in sorted(self._tools)),
        )

    def _add(self, tool: Tool) -> None:
        name = tool.definition.name
        if name in self._tools:
            raise Mistake(f"the tool name {name!r} is taken by {self._tools[name].site}")
        if len(self._tools) >= MOST_DEFINITIONS:
            raise Mistake(f"an App has at most {MOST_DEFINITIONS} tools")
        self._tools[name] = tool
