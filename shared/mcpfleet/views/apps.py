"""The entries of lists by MCP Apps: for clients that show documents, and for all others (X10, X12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpfleet.contracts.apps import FORMER, UI, VISIBLE, Audience, has_ui, is_for_models, ui_of
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.manifest import Definition


def entry(
    definition: Definition, documents: Mapping[str, Listed], pool: str, audience: Audience
) -> dict[str, Any] | None:
    """Return the declaration of a definition as lists show it to an audience; None where they leave it out.

    Args:
        definition: of any kind that has lists.
        documents: the resources of the view, by URI.
        pool: the definition's.
        audience: the view's.
    """
    if definition.unlisted:
        return None
    if definition.kind != "tool" or not has_ui(definition):
        return definition.wire
    ui = ui_of(definition) or {}
    if audience is not Audience.WITH_APPS:
        return _with_ui(definition.wire, {}) if is_for_models(ui) else None
    document = documents.get(ui.get("resourceUri", ""))
    if "resourceUri" not in ui or (document is not None and _is_of_one_app(document, definition, pool)):
        return _with_ui(definition.wire, ui)
    # Its document is hidden, or another application's. A tool that not everybody may see stays so.
    visibility = ui.get("visibility", VISIBLE)
    return _with_ui(definition.wire, {} if VISIBLE.issubset(visibility) else {"visibility": visibility})


def _is_of_one_app(document: Listed, tool: Definition, pool: str) -> bool:
    """Return whether a document and a tool are of one application; sources of a pool are several."""
    return document.pool == pool and document.definition.hosted == tool.hosted


def _with_ui(wire: Mapping[str, Any], ui: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration with this `_meta.ui`, and without the member of drafts."""
    meta = {name: each for name, each in wire["_meta"].items() if name not in (UI, FORMER)}
    if ui:
        meta[UI] = ui
    shown = {name: each for name, each in wire.items() if name != "_meta"}
    return {**shown, "_meta": meta} if meta else shown
