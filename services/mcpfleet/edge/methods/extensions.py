"""Methods of applications' own extensions: rows of the method table that an endpoint's snapshot declares (X43)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.methods.invoke import Invoker
from mcpfleet.edge.protocol.exchange import Check, Exchange, Handler, Method
from mcpfleet.edge.protocol.schema import no_parameters
from mcpfleet.views.view import Target
from mcpfleet.wire.errors import bad_params
from mcpfleet.wire.mirror import check_method_and_name
from mcpfleet.wire.protocol import MODERN

_NONE: Final[Mapping[str, Method]] = MappingProxyType({})


class ExtensionMethods:
    """Makes the rows of each endpoint once for each snapshot."""

    def __init__(self, snapshots: Snapshots, invoker: Invoker) -> None:
        self._snapshots = snapshots
        self._invoker = invoker
        self._rows: dict[str, tuple[Snapshot, Mapping[str, Method]]] = {}

    def of(self, endpoint: str) -> Mapping[str, Method]:
        """Return the rows of an endpoint's newest snapshot, by the methods' names."""
        snapshot = self._snapshots.newest(endpoint)
        if snapshot is None:
            return _NONE
        made = self._rows.get(endpoint)
        if made is None or made[0] is not snapshot:
            rows = {each.definition.name: self._row(each.definition) for each in _methods(snapshot)}
            made = self._rows[endpoint] = snapshot, rows
        return made[1]

    def _row(self, definition: Definition) -> Method:
        """Make the row of a method.

        A method for some callers is unknown to all others (T12). So what its header must repeat is checked only once
        its caller is known: before, a refusal would tell that it exists.
        """
        check = no_parameters if definition.mirrors is None else _mirrored(definition.mirrors)
        is_public = not definition.only_for
        return Method(
            definition.name,
            check if is_public else no_parameters,
            self._invoker.call_method if is_public else _checking(definition, check, self._invoker.call_method),
            frozenset(definition.revisions or (MODERN,)),
            is_offered=_is_offered,
            names=definition.mirrors if is_public else None,
            audit=_target,
        )


def _methods(snapshot: Snapshot) -> list[Any]:
    return [listed for listed in snapshot.extensions if listed.definition.kind == "method"]


def _target(exchange: Exchange) -> Target | None:
    return exchange.view.find("method", exchange.message.method)


def _is_offered(exchange: Exchange) -> bool:
    return _target(exchange) is not None


def _mirrored(name: str) -> Check:
    """Return a check that the parameter which a header repeats is a text."""

    def check(params: Mapping[str, Any]) -> None:
        if not isinstance(params.get(name), str):
            raise bad_params(f"`{name}` must be a string")

    return check


def _checking(definition: Definition, check: Check, handler: Handler) -> Handler:
    """Return a handler that compares the header first, and checks the form, as groups 8 and 10 do otherwise."""

    async def answer(exchange: Exchange) -> str | None:
        if exchange.revision.checks_first:
            check_method_and_name(exchange.headers, exchange.message, definition.mirrors)
        check(exchange.params)
        return await handler(exchange)

    return answer
