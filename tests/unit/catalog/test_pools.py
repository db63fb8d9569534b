"""The manifest that a pool lists."""

from __future__ import annotations

import pytest

from mcpfleet.catalog.rules import Decision, ManifestCount, Pool, PoolEmpties, PoolEnds, PoolLists, decide

OLD, NEW = "a" * 32, "b" * 32


def tallies(**workers: int) -> list[ManifestCount]:
    """The pool's workers that announce the old and the new manifest."""
    first = {"old": (OLD, 1.0), "new": (NEW, 2.0)}
    return [ManifestCount("library", first[name][0], count, first[name][1]) for name, count in workers.items() if count]


def pool(digest: str, *, is_empty: bool = False, is_over: bool = False) -> Pool:
    return Pool("library", digest, 0.0, is_empty, is_over)


@pytest.mark.parametrize(
    ("announced", "listed", "decisions"),
    [
        pytest.param({}, None, [], id="nobody"),
        pytest.param({"old": 1}, None, [PoolLists("library", OLD)], id="a first worker"),
        pytest.param({"old": 2}, pool(OLD), [], id="as before"),
        pytest.param({"old": 2, "new": 1}, pool(OLD), [], id="a rollout begins"),
        pytest.param({"old": 2, "new": 2}, pool(OLD), [PoolLists("library", NEW)], id="the newer of two equals"),
        pytest.param({"old": 1, "new": 2}, pool(OLD), [PoolLists("library", NEW)], id="most announce the new one"),
        pytest.param({"old": 1, "new": 2}, pool(NEW), [], id="a rollout changes a list once"),
        pytest.param({"old": 2, "new": 1}, pool(NEW), [PoolLists("library", OLD)], id="a rollout is called back"),
        pytest.param({}, pool(OLD), [PoolEmpties("library")], id="the last worker goes"),
        pytest.param({}, pool(OLD, is_empty=True), [], id="a pool lingers"),
        pytest.param(
            {}, pool(OLD, is_empty=True, is_over=True), [PoolEnds("library")], id="it lingered for long enough"
        ),
        pytest.param({"old": 1}, pool(OLD, is_empty=True), [PoolLists("library", OLD)], id="it comes back"),
        pytest.param(
            {"new": 1}, pool(OLD, is_empty=True, is_over=True), [PoolLists("library", NEW)], id="at the last moment"
        ),
    ],
)
def test_what_changes(announced: dict[str, int], listed: Pool | None, decisions: list[Decision]) -> None:
    assert decide(tallies(**announced), [listed] if listed else []) == decisions


def test_each_pool_is_decided_by_itself_and_in_the_order_of_names() -> None:
    announced = [ManifestCount("b", NEW, 1, 2.0), ManifestCount("a", OLD, 5, 1.0)]
    listed = [Pool("c", OLD, 0.0), Pool("b", OLD, 0.0)]
    assert decide(announced, listed) == [PoolLists("a", OLD), PoolLists("b", NEW), PoolEmpties("c")]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_that_came_at_once_every_replica_chooses_the_same(order: int) -> None:
    announced = [ManifestCount("library", OLD, 1, 1.0), ManifestCount("library", NEW, 1, 1.0)][::order]
    assert decide(announced, []) == [PoolLists("library", NEW)]
