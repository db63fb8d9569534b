"""Which objects are a policy, and what its answers mean (X48, X49)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.authorization.policy import Allow, Filter, OperatorPolicy, PolicyFailed, judge_all, load
from mcpfleet.contracts.policy import ItemShown, StreamAsked, VisibleWanted
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.wire.filter import OwnKeys
from tests.kit.logs import captured

ANN = Principal(subject="ann")
WANTED = VisibleWanted(
    endpoint="mcp",
    snapshot=1,
    group="staff",
    items=(ItemShown(kind="tool", name="search", pool="shop"), ItemShown(kind="tool", name="hidden", pool="shop")),
)


class Groups:
    """Puts everybody into one group."""

    def group(self, caller: Principal) -> str:
        return "staff"


def loaded(policy: object) -> OperatorPolicy:
    """Load an object as the settings name it."""
    module = ModuleType("operators_own")
    module.policy = policy  # type: ignore[attr-defined]
    sys.modules["operators_own"] = module
    return load("operators_own:policy")


@pytest.mark.rule("X48")
@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"visble": lambda self: None}, r"has 'visble': did you mean 'visible'\?"),
        ({"database": 1}, "has 'database': it may have group, visible, listen, stream"),
        ({}, "has none of group, visible, listen, stream"),
        ({"visible": staticmethod(anyio.sleep)}, "has `visible`, and no `group`"),
        ({"group": staticmethod(anyio.sleep)}, "`group`.* must be a plain function"),
        ({"listen": lambda self, caller, wanted: None}, r"`listen` \(.*test_policy.py:\d+\) must be an async function"),
    ],
)
def test_an_object_that_is_no_policy_does_not_start(members: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"MCPFLEET_POLICY: operators_own:policy:? ?{why}"):
        loaded(type("Wrong", (), members))


def test_what_cannot_be_imported_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_POLICY: cannot import nowhere:policy"):
        load("nowhere:policy")


@pytest.mark.rule("X48")
async def test_a_group_and_snapshot_is_asked_about_once_at_a_time_and_again_after_a_failure() -> None:
    asked, fails = list[str](), [True]

    class Hides(Groups):
        async def visible(self, group: str, items: set[Any]) -> Any:
            asked.append(group)
            await anyio.sleep(0.01)
            if fails:
                fails.clear()
                raise OSError
            return {each for each in items if each.name == "search"}

    policy = loaded(Hides())
    with pytest.raises(PolicyFailed, match="visible raised OSError"):
        await policy.visible(WANTED, 0)
    found = list[Any]()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(_keep, policy, found)
    assert found == [(0,)] * 5
    assert asked == ["staff"] * 2
    await policy.visible(WANTED, 1)
    assert len(asked) == 3, "another version of the policy"


async def _keep(policy: OperatorPolicy, found: list[Any]) -> None:
    found.append(await policy.visible(WANTED, 0))


@pytest.mark.rule("X48")
async def test_silence_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.authorization.policy.WITHIN", 0.05)

    class Silent(Groups):
        async def visible(self, group: str, items: set[Any]) -> Any:
            await anyio.sleep_forever()

    with pytest.raises(PolicyFailed, match="visible took longer than"):
        await loaded(Silent()).visible(WANTED, 0)


@pytest.mark.parametrize("group", [None, "", 1, "x" * 257])
async def test_a_group_is_a_short_text(group: Any) -> None:
    policy = loaded(type("Wrong", (), {"group": lambda self, caller: group}))
    with pytest.raises(PolicyFailed, match="group must return a text"):
        policy.group(ANN)


async def test_families_of_get_streams_are_judged_by_stream() -> None:
    class Judges:
        async def stream(self, caller: Principal, families: frozenset[str]) -> Any:
            assert families == {"tools", "updates"}
            return Allow({"updates"}, 5) if caller.subject == "ann" else None

    policy = loaded(Judges)
    assert policy.judges == ("stream",)
    asked = StreamAsked(endpoint="mcp", principal=ANN, judging="stream", lists=("tools", "updates"))
    allowed = await policy.judge(asked)
    assert (allowed.outcome, allowed.lists, allowed.seconds) == ("allowed", ("updates",), 5.0)
    assert (await policy.judge(asked.model_copy(update={"principal": Principal()}))).outcome == "denied"
    listened = await policy.judge(StreamAsked(endpoint="mcp", principal=ANN, lists=("tools",)))
    assert (listened.outcome, listened.lists) == ("allowed", ("tools",)), "it judges no listen streams"


@pytest.mark.rule("X49")
@pytest.mark.parametrize(
    "answer",
    [
        True,
        Allow(Filter(frozenset({"prompts"}))),
        Allow(Filter(uris=("a:2",))),
        Allow(Filter(task_ids=("t",))),
        Allow(Filter(own=(OwnKeys("stockItems", ("lamp",)),))),
        Allow(Filter(), 0),
        Allow(Filter(), True),
        Allow({"tools"}),
    ],
)
async def test_no_listen_may_be_allowed_more_or_in_another_form(answer: Any) -> None:
    class Judges:
        async def listen(self, caller: Principal, wanted: Filter) -> Any:
            return answer

    with pytest.raises(PolicyFailed, match="listen"):
        await loaded(Judges()).judge(StreamAsked(endpoint="mcp", principal=ANN, lists=("tools",), uris=("a:1",)))


@pytest.mark.rule("X49")
async def test_a_wrong_answer_about_one_stream_leaves_the_others_theirs() -> None:
    class Judges:
        async def listen(self, caller: Principal) -> Any:
            return None

        async def stream(self, caller: Principal, families: frozenset[str]) -> Any:
            if caller.subject is None:
                raise TimeoutError
            return Allow([["tools"]] if caller.subject == "ann" else ["tools"])  # type: ignore[list-item]  # the mistake

    log = LogCapture()
    asked = [
        StreamAsked(endpoint="mcp", principal=ANN, lists=("tools",)),
        *(
            StreamAsked(endpoint="mcp", principal=Principal(subject=subject), judging="stream", lists=("tools",))
            for subject in (None, "ann", "bob")
        ),
    ]
    judged = await judge_all(loaded(Judges()), asked, captured(log))
    assert [each.outcome for each in judged] == ["undecided", "undecided", "undecided", "allowed"]
    assert [line["error"] for line in log.entries] == [
        "listen raised TypeError",
        "stream raised TimeoutError",
        "stream must return an Allow of names of families",
    ]
