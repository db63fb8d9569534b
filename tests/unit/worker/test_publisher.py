"""The hints of a worker: to every endpoint of its pool, and again if a lost link may have lost them."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from mcpfleet.bus.errors import Unavailable
from mcpfleet.contracts.catalog import Announced
from mcpfleet.contracts.hints import resource_hint_subject, resource_key
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.publisher import Publisher

BOTH = Announced(endpoints=("mcp", "other"))
BOOK, OTHER = "library://books/1", "library://books/2"


class Link:
    """A bus that is up, or is not."""

    def __init__(self) -> None:
        self.is_up = True
        self.sent: list[tuple[str, str]] = []
        self.causes: list[TraceContext | None] = []
        self.tell: Callable[[bool], None] = lambda _: None

    def on_link(self, hear: Callable[[bool], None]) -> None:
        self.tell = hear

    def hint(self, subject: str, body: bytes, cause: TraceContext | None) -> None:
        if not self.is_up:
            raise Unavailable(subject)
        _, _, endpoint, pool, key = subject.split(".")
        assert (pool, key) == ("library", resource_key(body.decode()))
        self.sent.append((endpoint, body.decode()))
        self.causes.append(cause)

    def lose(self) -> None:
        self.is_up = False
        self.tell(False)

    def come_back(self) -> None:
        self.is_up = True
        self.tell(True)


def publisher(link: Link, doubtful: float = 4.0) -> Publisher:
    return Publisher(link, "library", doubtful=doubtful, log=structlog.get_logger())  # type: ignore[arg-type]


def test_every_endpoint_of_the_pool_is_told() -> None:
    link = Link()
    speaks = publisher(link)
    speaks.counted(BOTH)
    speaks.publish(BOOK)
    assert link.sent == [("mcp", BOOK), ("other", BOOK)]
    assert resource_hint_subject("mcp", "library", resource_key(BOOK)).startswith("hint.resource.mcp.library.")


def test_hints_from_before_the_catalogs_answer_are_sent_then() -> None:
    link = Link()
    speaks = publisher(link)
    speaks.publish(BOOK)
    assert link.sent == []
    speaks.counted(BOTH)
    speaks.counted(BOTH)
    assert link.sent == [("mcp", BOOK), ("other", BOOK)]


def test_hints_from_without_a_link_or_just_before_its_loss_are_sent_again() -> None:
    link = Link()
    speaks = publisher(link)
    speaks.counted(Announced(endpoints=("mcp",)))
    speaks.publish(BOOK)
    link.lose()
    speaks.publish(OTHER)
    link.come_back()
    assert link.sent == [("mcp", BOOK), ("mcp", BOOK), ("mcp", OTHER)]


def test_hints_from_long_before_a_loss_are_not_sent_again() -> None:
    link = Link()
    speaks = publisher(link, doubtful=0.0)
    speaks.counted(Announced(endpoints=("mcp",)))
    speaks.publish(BOOK)
    time.sleep(0.01)
    link.lose()
    link.come_back()
    assert link.sent == [("mcp", BOOK)]


def test_a_hint_that_is_sent_again_keeps_its_cause() -> None:
    link, cause = Link(), TraceContext.fresh(sampled=True)
    speaks = publisher(link)
    speaks.publish(BOOK, cause)
    speaks.counted(Announced(endpoints=("mcp",)))
    link.lose()
    link.come_back()
    assert link.causes == [cause, cause]
