"""The operator's policy on a stream, as an edge takes it: no answer counts that is older than a change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from mcpfleet.contracts.policy import StreamAsked, StreamJudged
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.streams.lease import Judged, StreamAuthority
from mcpfleet.wire.errors import NotAnswered
from mcpfleet.wire.filter import Filter

WANTED = Filter(frozenset({"tools"}), ("shop://open",))


@dataclass
class Answers:
    """Answers a question by the next of these; it has heard of this change of policy."""

    streams: list[StreamJudged]
    policy_number: int = 2
    asked: list[StreamAsked] = field(default_factory=list)

    async def judge(self, asked: StreamAsked) -> StreamJudged:
        self.asked.append(asked)
        return self.streams.pop(0)

    async def of(self) -> Judged | None:
        played: Any = self
        return await StreamAuthority(played, played, played).judge("mcp", Principal(subject="ann"), "listen", WANTED)


def allowed(number: int, *uris: str) -> StreamJudged:
    return StreamJudged(outcome="allowed", uris=uris, seconds=60.0, number=number)


@pytest.mark.rule("X52")
async def test_an_answer_from_before_a_change_of_policy_does_not_count() -> None:
    """Even a denial: the newer policy may allow it."""
    answers = Answers([allowed(1, "shop://open"), StreamJudged(outcome="denied", number=1), allowed(2)])
    judged = await answers.of()
    assert judged is not None
    assert (judged.number, judged.allowed) == (2, Filter())
    assert len(answers.asked) == 3


@pytest.mark.rule("X49", "X52")
async def test_answers_that_are_too_old_and_none_at_all_are_no_answer() -> None:
    for streams in ([allowed(1)] * 3, [StreamJudged()]):
        with pytest.raises(NotAnswered):
            await Answers(list(streams)).of()


@pytest.mark.rule("X49")
async def test_more_than_was_wanted_is_never_allowed() -> None:
    judged = await Answers([allowed(2, "shop://open", "shop://secret")]).of()
    assert judged is not None
    assert judged.allowed == Filter(frozenset(), ("shop://open",))
