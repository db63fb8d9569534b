"""Who takes part in the extension for tasks: the client of a request, and the endpoint for it (K2, K12)."""

from __future__ import annotations

from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.wire.capabilities import TASKS, TASKS_EXTENSION, missing
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY


def declares(inquiry: Inquiry) -> bool:
    """Whether the client of a request takes tasks: it says so on each, and the revisions of 2025 know of none (K2)."""
    return not missing((TASKS,), inquiry.request.envelope.meta[CLIENT_CAPABILITIES_META_KEY])


def takes_tasks(inquiry: Inquiry) -> bool:
    """Whether the endpoint has tasks for the client of a request: some of its tools make them, or once did (K12)."""
    view = inquiry.view
    return view.has_tasks and (TASKS_EXTENSION in view.capabilities.get("extensions", {}) or declares(inquiry))
