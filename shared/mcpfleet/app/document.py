"""Documents of MCP Apps: files and functions as resources (X9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from mcp_types import Resource as WireResource

from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import Mistake, NotFound, OutputError
from mcpfleet.app.file_source import OneFile, answer_with_meta
from mcpfleet.app.folder import FileContent, Folder, check_path
from mcpfleet.app.handler import Answer, HandlerRequest
from mcpfleet.app.html_check import warn_of_html
from mcpfleet.app.resource import Resource
from mcpfleet.app.schema import MISSING
from mcpfleet.app.signature import Signature
from mcpfleet.app.site import Site
from mcpfleet.contracts.apps import APP_TYPE
from mcpfleet.contracts.manifest import Definition, FileRef

_OF_HANDLERS: Final = frozenset({"timeout", "on_disconnect", "asks", "may_ask", "per_caller"})
"""Options of functions, which no file has."""
_TEXTS: Final = (str, str | None, MISSING, Any, object)
"""The return annotations of a function that makes a document."""


class UiDocument(Resource):
    """A document that a function makes."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        signature: Signature,
        *,
        name: str,
        ttl: float,
        unlisted: bool,
    ) -> None:
        if signature.returns not in _TEXTS:
            raise Mistake("a document is one text of HTML: annotate the function with `-> str`")
        super().__init__(
            handler, declaration, signature,
            name=name, mime_type=APP_TYPE, annotations=None, size=None, ttl=ttl, unlisted=unlisted,
        )  # fmt: skip
        self._is_checked = False

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        if request.completing is not None:
            return super()._finish(value, request)
        if value is None:
            raise NotFound(request.uri or self.definition.name)
        if not isinstance(value, str):
            raise OutputError(f"a document is one text of HTML, and the function returned {type(value).__name__}")
        if not self._is_checked:
            self._is_checked = True
            warn_of_html(value, self.definition, str(self.site))
        return answer_with_meta(self.definition, request, {"mimeType": APP_TYPE, "text": value})


def document_file(
    root: Folder, path: str, site: Site, declared: Mapping[str, Any], *, name: str | None, ttl: float, unlisted: bool
) -> OneFile:
    """Return the source of a document that is a file.

    Args:
        root: the folder that its path begins at.
        path: the file's.
        site: the declaration.
        declared: the members of `Declaration`, without its kind.
        name: for programs; the file's name without its ending by default.
        ttl: seconds for which a client may keep it.
        unlisted: no list has it.

    Raises:
        Mistake: the path or an option is none of a file.
    """
    if wrong := sorted(_OF_HANDLERS & declared.keys()):
        raise Mistake(f"{wrong[0]} is for functions: a file is answered without one")
    check_path(path)
    declaration = Declaration(kind="resource", **declared)
    wire = WireResource(
        uri=declaration.name,
        name=name or PurePosixPath(path).stem,
        mime_type=APP_TYPE,
        **declaration.described(None),
    )

    def define(content: FileContent, ref: FileRef) -> Definition:
        file = ref.model_copy(update={"mime": APP_TYPE})
        definition = declaration.define(wire, ttl=ttl, unlisted=unlisted, file=file)
        warn_of_html(content.body.decode(errors="replace"), definition, root.shown(path))
        return definition

    return OneFile(root, path, site, define)
