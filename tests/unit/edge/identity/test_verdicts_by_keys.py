"""Verdicts that hold for minutes while authorization names the key of their token, and end with it."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.contracts.authorization import Admitted, Revocation
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.errors import Rejection
from tests.unit.edge.identity.test_admission import SOMEBODY, Verdicts, somebody

pytestmark = pytest.mark.usefixtures("jumping")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Keyed:
    """An edge whose callers' tokens are good by keys, and authorization's end of it."""

    def __init__(self, *, silence: float = 5.0, **changes: object) -> None:
        self.clock = Clock()
        self.answer = Admitted(principal=SOMEBODY, lasts=10, lasts_heard=300, good_for=3600, key="old")
        self.client = Verdicts(self.answer.model_copy(update=changes))
        self.admission = Admission(
            self.client, EdgeSettings(admission_entries=10, authority_silence=silence), clock=self.clock
        )

    async def asks(self, number: int = 0) -> bool:
        """Whether a request of a caller is asked about."""
        before = self.client.asked.total()
        await self.admission.admit("mcp", somebody(number))
        return self.client.asked.total() > before

    def hear(self, *keys: str, seconds: float = 0.0) -> None:
        """Hear of keys every two seconds, for so long, and once more at the end."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.admission.confirm_keys(keys)
            self.clock.now = min(until, self.clock.now + 2)
        self.admission.confirm_keys(keys)


@pytest.mark.rule("M86")
async def test_a_verdict_by_a_key_that_is_heard_of_holds_for_minutes() -> None:
    edge = Keyed()
    assert await edge.asks()
    edge.hear("old", "other", seconds=299)
    assert not await edge.asks()
    edge.hear("old", seconds=1)
    assert await edge.asks(), "its own time is over"


@pytest.mark.rule("M86")
async def test_a_verdict_ends_ten_seconds_after_its_key_was_heard_of_last() -> None:
    edge = Keyed()
    await edge.asks()
    edge.hear("old", seconds=100)
    edge.clock.now += 9.9
    assert not await edge.asks()
    edge.clock.now += 0.2
    edge.hear("other")
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_a_verdict_whose_key_was_never_heard_of_holds_for_ten_seconds() -> None:
    edge = Keyed()
    edge.hear("old", seconds=50)
    await edge.asks()
    edge.clock.now += 9.9
    assert not await edge.asks()
    edge.clock.now += 0.2
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_a_verdict_ends_with_its_token_however_well_its_key_is_heard_of() -> None:
    edge = Keyed(lasts_heard=42.0)
    await edge.asks()
    edge.hear("old", seconds=41.9)
    assert not await edge.asks()
    edge.hear("old", seconds=0.1)
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_a_longer_silence_that_is_allowed_is_the_one_that_counts() -> None:
    edge = Keyed(silence=30.0)
    await edge.asks()
    edge.hear("old", seconds=100)
    edge.clock.now += 29
    assert not await edge.asks()
    edge.clock.now += 2
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_a_verdict_without_a_key_holds_for_its_ten_seconds() -> None:
    """An introspected token may end at its issuer at any time, and an older authorization names no key."""
    edge = Keyed(key=None, lasts_heard=None)
    await edge.asks()
    edge.hear("old", seconds=10)
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_a_long_verdict_begins_no_stream() -> None:
    """A stream goes by an answer of the last ten seconds."""
    edge = Keyed()
    await edge.asks()
    edge.hear("old", seconds=9)
    await edge.admission.verdict("mcp", somebody())
    assert edge.client.asked == {"mcp": 1}
    edge.hear("old", seconds=2)
    verdict = await edge.admission.verdict("mcp", somebody())
    assert edge.client.asked == {"mcp": 2}
    assert (verdict.asked_at, verdict.admitted.key) == (edge.clock.now, "old")


@pytest.mark.rule("M86")
async def test_a_change_of_policy_ends_a_long_verdict_within_half_of_a_short_one() -> None:
    edge = Keyed()
    await edge.asks()
    edge.hear("old", seconds=100)
    edge.admission.apply([Revocation(number=1, kind="policy", key="")], 1)
    edge.client.answer = edge.answer.model_copy(update={"number": 1})
    edge.hear("old", seconds=5.1)
    assert await edge.asks()


@pytest.mark.rule("M86")
async def test_long_verdicts_that_began_together_are_not_renewed_together() -> None:
    clock = Clock()
    client = Verdicts(Admitted(principal=SOMEBODY, lasts=10, lasts_heard=300, key="old"))
    admission = Admission(client, EdgeSettings(admission_entries=1_000), clock=clock)
    async with anyio.create_task_group() as tasks:
        await tasks.start(admission.run)
        for number in range(500):
            await admission.admit("mcp", somebody(number))
        renewed = []
        for _ in range(30):
            before = client.asked.total()
            for number in range(500):
                await admission.admit("mcp", somebody(number))
            await anyio.wait_all_tasks_blocked()
            renewed.append(client.asked.total() - before)
            for _ in range(5):
                admission.confirm_keys(["old"])
                clock.now += 2
        tasks.cancel_scope.cancel()
    assert sum(renewed[:15]) == 0, "not before half of its life"
    assert sum(renewed) == 500, "each once, and nobody waited"
    assert max(renewed) < 100


@pytest.mark.rule("M87")
async def test_a_key_that_is_not_good_any_more_ends_its_verdicts_and_no_others() -> None:
    edge = Keyed()
    await edge.asks(1)
    edge.client.answer = edge.answer.model_copy(update={"key": "new"})
    await edge.asks(2)
    edge.hear("old", "new", seconds=100)
    edge.admission.end_keys({"new"}, age=1.0)
    edge.client.answer = Admitted(principal=None, lasts=1)
    with pytest.raises(Rejection):
        await edge.asks(1)
    assert not await edge.asks(2)


@pytest.mark.rule("M87")
async def test_keys_that_were_fetched_before_a_verdict_say_nothing_against_it() -> None:
    """One service has not heard yet of the key that another has: nothing flaps between them."""
    edge = Keyed(key="new")
    await edge.asks()
    edge.hear("new", seconds=2)
    edge.admission.end_keys({"old"}, age=2.5)
    assert not await edge.asks()
    edge.admission.end_keys({"old"}, age=1.5)
    assert await edge.asks()


@pytest.mark.rule("M87")
async def test_a_verdict_that_came_late_by_a_key_that_ended_ends_at_the_next_look() -> None:
    edge = Keyed()
    await edge.asks(1)
    edge.hear("old", seconds=20)
    edge.admission.end_keys({"new"}, age=0.0)
    edge.clock.now -= 1  # it was asked for before the keys were fetched
    assert await edge.asks(2)
    edge.clock.now += 3
    edge.admission.end_keys({"new"}, age=3 - 1)
    assert await edge.asks(2)


@pytest.mark.rule("M87")
async def test_who_holds_a_permission_by_a_key_hears_of_its_end_for_a_while() -> None:
    """A stream may begin while its key ends, with a permission that was asked for before."""
    edge, over = Keyed(), []
    edge.admission.on_keys_ended(lambda is_over: over.append([is_over("old", 1_000.0), is_over("new", 1_000.0)]))
    await edge.asks()
    edge.clock.now += 5
    for _ in range(3):
        edge.admission.end_keys({"new"}, age=1.0)
        edge.clock.now += 5
    assert over == [[True, False]] * 3
    edge.clock.now += 30
    edge.admission.end_keys({"new"}, age=1.0)
    edge.admission.end_keys({"new"}, age=1.0)
    assert len(over) == 4, "it is forgotten in the end"
    assert edge.admission._keys == {}
