"""Answers `$SRV.PING`, `INFO` and `STATS` from the bus's own counters, so that `nats micro list` shows the fleet.

NATS's own service helper runs one handler at a time, and shows the text of the last error to any asker. Only its
forms of the answers are used (NATS ADR-32).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from nats.micro.service import EndpointInfo, EndpointStats, ServiceInfo, ServicePing, ServiceStats

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming

SUBJECT: Final = "$SRV"
"""The subjects of NATS services, which have no fleet's prefix."""


class Discovery:
    """One process as a service of NATS: its endpoints are the subjects that it hears in a group."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._identity: dict[str, Any] = {
            "id": bus.process,
            "name": f"mcpfleet-{service}",
            "version": version("mcpfleet"),
            "metadata": {"user": bus.user},
        }
        self._started = datetime.now(UTC)

    async def listen(self) -> None:
        """Answer from now on: to everybody, by the service's name, and by the process's id."""
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "PING": ServicePing(**self._identity).to_dict,
            "INFO": self._info,
            "STATS": self._stats,
        }
        name = self._identity["name"]
        for verb, answer in answers.items():
            for suffix in ("", f".{name}", f".{name}.{self._bus.process}"):
                await self._bus.subscribe(
                    f"{SUBJECT}.{verb}{suffix}", self._answering(answer), asked_by=_operator, absolute=True
                )

    def _answering(self, answer: Callable[[], dict[str, Any]]) -> Callable[[Incoming], None]:
        def on_message(message: Incoming) -> None:
            self._bus.respond(message, json.dumps(answer()).encode())

        return on_message

    def _info(self) -> dict[str, Any]:
        endpoints = [
            EndpointInfo(name=_name(each), subject=each.subject, queue_group=each.group) for each in self._own()
        ]
        return ServiceInfo(**self._identity, description="mcpfleet", endpoints=endpoints).to_dict()

    def _stats(self) -> dict[str, Any]:
        endpoints = [
            EndpointStats(
                name=_name(each),
                subject=each.subject,
                queue_group=each.group,
                num_requests=each.received,
                num_errors=each.failed,
                processing_time=round(each.seconds * 1e9),
                average_processing_time=round(each.seconds * 1e9 / each.received) if each.received else 0,
            )
            for each in self._own()
        ]
        return ServiceStats(**self._identity, started=self._started, endpoints=endpoints).to_dict()

    def _own(self) -> list[Subscription]:
        return [each for each in self._bus.subscriptions if each.group]


def _operator(subject: str) -> str:
    """Only the operator asks; its inbox is `inbox.operator` under the fleet's prefix."""
    del subject
    return "inbox.operator."


def _name(subscription: Subscription) -> str:
    """An endpoint's name has no dots, nor wildcards."""
    return subscription.subject.replace(".", "-").replace("*", "any")
