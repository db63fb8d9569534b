"""What each method is answered by, once the ladder let the request through: admission, the view, and who answers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.methods.answers import Answer, common
from mcpfleet.edge.methods.invoke import Uses
from mcpfleet.edge.methods.lists import KINDS, Lists
from mcpfleet.edge.methods.tasks import TaskMethods
from mcpfleet.edge.protocol.exchange import Inquiry, Request
from mcpfleet.edge.protocol.schema import METHODS, OF_TASKS
from mcpfleet.edge.server.audit import AUDITED, Audit
from mcpfleet.edge.server.compat_2025 import Legacy
from mcpfleet.edge.streams.listen import Listens
from mcpfleet.edge.tasks.extension import takes_tasks
from mcpfleet.edge.transport.client import ClientGone
from mcpfleet.wire.errors import Rejection, not_answered, unknown_method
from mcpfleet.wire.protocol import SERVED, SERVED_WITH_LEGACY


class Methods:
    """Answers requests that the ladder let through."""

    def __init__(
        self,
        *,
        endpoints: Mapping[str, Endpoint],
        admission: Admission,
        limits: Limits,
        snapshots: Snapshots,
        lists: Lists,
        uses: Uses,
        legacy: Legacy,
        listens: Listens,
        tasks: TaskMethods,
        audit: Audit,
    ) -> None:
        self._endpoints = endpoints
        self._admission = admission
        self._limits = limits
        self._audit = audit
        self._snapshots = snapshots
        self._lists = lists
        self._legacy = legacy
        self._answers: Mapping[str, Answer] = {
            **common(lists, uses),
            "subscriptions/listen": listens.answer,
            "tasks/get": tasks.get,
            "tasks/update": tasks.update,
            "tasks/cancel": tasks.cancel,
        }

    async def answer(self, request: Request) -> str | None:
        """Answer a request; returns the error's type, or None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet.
            ClientGone: `server/discover` cannot be answered truly: the connection closes (D15).
        """
        method = request.envelope.method
        if method == "server/discover" and not request.envelope.is_legacy:
            await self._discover(request)
            return None
        principal = await self._admission.admit(request.endpoint, request.client.credential)
        view = self._snapshots.view(request.endpoint, principal)
        if view is None:
            raise not_answered("the catalog")
        inquiry = Inquiry(request, principal, view)
        answer = self._legacy.answer if request.envelope.is_legacy else self._modern(inquiry)
        if method in KINDS:  # of other methods the target comes first (T11)
            await self._limits.take_request(request.endpoint, principal)
        if method not in AUDITED:
            return await answer(inquiry)
        started, outcome = time.monotonic(), "cancelled"
        try:
            error = await answer(inquiry)
            outcome = error or "ok"
        except Rejection as rejection:
            outcome = str(rejection.code or rejection.status)
            raise
        finally:
            self._audit.note(inquiry, outcome, time.monotonic() - started)
        return error

    def _modern(self, inquiry: Inquiry) -> Answer:
        """Who answers a modern request.

        Raises:
            Rejection: 404 where the endpoint does not offer what the method is of (M14).
        """
        method = inquiry.request.envelope.method
        capability = METHODS[method].capability
        view = inquiry.view
        is_offered = (
            takes_tasks(inquiry) if capability == OF_TASKS else capability is None or capability in view.capabilities
        )
        if not is_offered:
            raise unknown_method()
        return self._answers[method]

    async def _discover(self, request: Request) -> None:
        """Answer from memory: neither admission nor limits nor a bus are needed (D15, M32)."""
        view = self._snapshots.view(request.endpoint, ANONYMOUS)
        if view is None:
            raise ClientGone
        served = SERVED_WITH_LEGACY if self._endpoints[request.endpoint].legacy else SERVED
        await self._lists.discover(Inquiry(request, ANONYMOUS, view), served)
