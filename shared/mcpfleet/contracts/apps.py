"""The form of MCP Apps, which authors, the catalog and edges share: the capability, and `_meta.ui` (X8 to X11)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from mcpfleet.contracts.manifest import Definition

APPS_EXTENSION: Final = "io.modelcontextprotocol/ui"
UI_SCHEME: Final = "ui://"
APP_TYPE: Final = "text/html;profile=mcp-app"
"""The media type of a document that hosts show."""
UI: Final = "ui"
"""The member of `_meta` that is Apps'."""
FORMER: Final = "ui/resourceUri"
"""The member of drafts, which no list has."""
MODEL: Final = "model"
VISIBLE: Final = frozenset({MODEL, "app"})
"""Those who may see a tool."""


class Audience(StrEnum):
    """The kind of client that a view is for (X12)."""

    WITHOUT_APPS = "without apps"
    WITH_APPS = "with apps"
    WITHOUT_UI = "without ui"
    """A client of 2025 where the endpoint gives those no Apps: no `ui://` URI exists for it (X16)."""


def declares_apps(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client shows documents: its capability names their media type, and nothing else counts (X11)."""
    extensions = capabilities.get("extensions")
    settings = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(types, list) and APP_TYPE in types


def without_apps(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a client's capabilities without Apps."""
    if not declares_apps(capabilities):
        return capabilities
    extensions = {name: each for name, each in capabilities["extensions"].items() if name != APPS_EXTENSION}
    return {**capabilities, "extensions": extensions}


def is_ui(definition: Definition) -> bool:
    """Return whether a definition is a document, or a template of URIs of documents."""
    return definition.kind in ("resource", "template") and definition.name.startswith(UI_SCHEME)


def ui_of(definition: Definition) -> Mapping[str, Any] | None:
    """Return a definition's `_meta.ui`; None where it has none."""
    meta = definition.wire.get("_meta")
    found = meta.get(UI) if isinstance(meta, dict) else None
    return found if isinstance(found, dict) else None


def has_ui(definition: Definition) -> bool:
    """Return whether the `_meta` of a definition has a member of Apps, that of drafts too."""
    meta = definition.wire.get("_meta")
    return isinstance(meta, dict) and (UI in meta or FORMER in meta)


def is_for_models(ui: Mapping[str, Any]) -> bool:
    """Return whether models see a tool with this `_meta.ui`."""
    visibility = ui.get("visibility")
    return not isinstance(visibility, list) or MODEL in visibility


def ui_faults(definition: Definition) -> list[str]:
    """Return the rules of Apps that a definition breaks; each names a member and a rule, and never a value."""
    if is_ui(definition):
        if definition.kind == "template":
            return ["name: a `ui://` URI is exact, and never a template (X9)"]
        return [] if definition.wire.get("mimeType") == APP_TYPE else [f"wire.mimeType: of a `ui://` URI, {APP_TYPE}"]
    ui = ui_of(definition)
    if definition.kind != "tool" or ui is None:
        return []
    uri, visibility = ui.get("resourceUri", UI_SCHEME), ui.get("visibility", [MODEL])
    found = []
    if not isinstance(uri, str) or not uri.startswith(UI_SCHEME):
        found.append("wire._meta.ui.resourceUri: a `ui://` URI (X10)")
    if (
        not isinstance(visibility, list)
        or not visibility
        or not all(isinstance(each, str) and each in VISIBLE for each in visibility)
    ):
        found.append("wire._meta.ui.visibility: a list of `model` and `app` (X10)")
    return found
