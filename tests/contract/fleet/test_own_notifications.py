"""Notifications of an application's own extension: a stream hears of the keys that it named, at every edge."""

from __future__ import annotations

import json

import anyio
import pytest

from mcpfleet.app import Caller
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, END, Listener, listening
from tests.contract.fleet.stock_app import CHANGED, Shop, asked
from tests.contract.fleet.test_own_methods import ANN, BOB, GUARDED
from tests.kit.waiting import until


def keys(stream: Listener) -> list[str]:
    """The keys that were said to have changed."""
    return [each["params"]["key"] for each in stream.messages if each.get("method") == CHANGED]


@pytest.mark.rule("X46")
async def test_a_stream_hears_of_its_own_keys_at_every_edge_and_of_no_other() -> None:
    shop = Shop()
    async with (
        LocalFleet(shop.app, edges=2) as fleet,
        fleet.http(0) as one,
        fleet.http(1) as two,
        listening(one, "/mcp", stockItems=["lamp", "chair", "lamp"]) as [lamps],
        listening(two, "/mcp", stockItems=["table"], toolsListChanged=True) as [tables],
    ):
        assert lamps.messages[0]["params"]["notifications"] == {"stockItems": ["lamp", "chair"]}
        assert tables.messages[0]["params"]["notifications"] == {"stockItems": ["table"], "toolsListChanged": True}
        await two.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, name="lamp"))
        shop.app.tell(shop.changed, "table")
        await until(lambda: keys(lamps) == ["lamp"] and keys(tables) == ["table"])
        told = lamps.messages[1]["params"]
        assert {name for name in told if name != "_meta"} == {"key"}
        shop.app.tell(shop.changed, "sofa")
        shop.app.tell(shop.changed, "chair")
        await until(lambda: keys(lamps) == ["lamp", "chair"])
        assert keys(tables) == ["table"]


@pytest.mark.rule("X46")
@pytest.mark.parametrize(
    "field", ["lamp", [1], [""], ["x" * 2049], [str(number) for number in range(257)]], ids=lambda each: str(each)[:9]
)
async def test_a_filter_is_an_array_of_a_bounded_number_of_keys(field: object) -> None:
    async with LocalFleet(Shop().app) as fleet, fleet.http() as http:
        post = asked("subscriptions/listen", {"notifications": {"stockItems": field}})
        refused = await http.post("/mcp", **post)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)


@pytest.mark.rule("X46", "X42")
async def test_a_hidden_notifications_filter_is_an_unknown_one() -> None:
    def declare(extension: object) -> None:
        shop_extension = extension
        shop_extension.notification(  # type: ignore[attr-defined]
            "notifications/stock/secret", filter="secretItems", only_for={"subject:ann"}
        )
        shop_extension.notification(  # type: ignore[attr-defined]
            "notifications/stock/priced", filter="pricedItems", scopes={"stock"}
        )

    shop = Shop(declare=declare)
    async with LocalFleet(shop.app, environment=GUARDED) as fleet, fleet.http() as http:
        stream = Listener()
        with anyio.fail_after(10):
            await stream.run(http, "/mcp", {"secretItems": ["a"], "unknownItems": ["a"]}, BOB)
        assert stream.kinds() == [ACK, END]
        assert stream.messages[0]["params"]["notifications"] == {}
        async with listening(http, "/mcp", token=ANN, secretItems=["a"]) as [anns]:
            secret = next(each for each in shop.extension.notifications if each.filter == "secretItems")
            shop.app.tell(secret, "a")
            await until(lambda: len(anns.messages) == 2)
        post = asked("subscriptions/listen", {"notifications": {"pricedItems": ["a"]}}, token=BOB)
        refused = await http.post("/mcp", **post)
        assert refused.status_code == 403
        assert 'scope="stock"' in refused.headers["www-authenticate"]


@pytest.mark.rule("X46")
async def test_a_pool_cannot_tell_of_another_pools_notification() -> None:
    shop = Shop()
    async with (
        LocalFleet(shop.app) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", stockItems=["lamp"]) as [lamps],
    ):
        stranger = Shop(name="stranger")
        await fleet.add_worker(stranger.app)
        stranger.app.tell(stranger.changed, "lamp")
        shop.app.tell(shop.changed, "lamp")
        await until(lambda: keys(lamps))
        assert json.dumps(lamps.messages).count(CHANGED) == 1


class Keepers:
    """The callers that may hear of each key, and the questions."""

    def __init__(self) -> None:
        self.may = {("ann", "lamp"), ("bob", "chair")}
        self.asked: list[tuple[str | None, tuple[str, ...]]] = []

    async def permit(self, caller: Caller, asked: list[str]) -> list[bool]:
        """Decide by the subject."""
        self.asked.append((caller.subject, tuple(asked)))
        return [(caller.subject or "", key) in self.may for key in asked]


@pytest.mark.rule("X50", "X46")
async def test_a_notifications_permit_decides_who_hears_of_which_keys_and_refused_ones_are_left_out() -> None:
    shop, keepers = Shop(), Keepers()
    shop.changed.permit(keepers.permit)
    async with (
        LocalFleet(shop.app, edges=2, environment=GUARDED) as fleet,
        fleet.http(0) as one,
        fleet.http(1) as two,
        listening(one, "/mcp", token=ANN, stockItems=["lamp", "chair"], toolsListChanged=True) as [anns],
        listening(two, "/mcp", token=BOB, stockItems=["lamp", "chair"]) as [bobs],
    ):
        assert anns.messages[0]["params"]["notifications"] == {"stockItems": ["lamp"], "toolsListChanged": True}
        assert bobs.messages[0]["params"]["notifications"] == {"stockItems": ["chair"]}
        assert keepers.asked == [("ann", ("lamp", "chair")), ("bob", ("lamp", "chair"))]
        for key in ("chair", "lamp"):
            shop.app.tell(shop.changed, key)
        await until(lambda: keys(anns) == ["lamp"] and keys(bobs) == ["chair"])
        refused = Listener()
        await refused.run(one, "/mcp", {"stockItems": ["chair"]}, ANN)
        assert (refused.kinds(), refused.messages[0]["params"]["notifications"]) == ([ACK, END], {})


@pytest.mark.rule("X50", "X51", "X52")
async def test_keys_of_changed_permits_wait_for_a_new_decision_and_a_refusal_ends_them_alone() -> None:
    shop, keepers = Shop(), Keepers()
    shop.changed.permit(keepers.permit)
    async with (
        LocalFleet(shop.app, environment=GUARDED) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", token=ANN, stockItems=["lamp"], toolsListChanged=True) as [anns],
    ):
        shop.app.tell(shop.changed, "lamp")
        await until(lambda: keys(anns) == ["lamp"])
        asked = len(keepers.asked)
        shop.app.permits_changed()
        await anyio.sleep(0.3)
        shop.app.tell(shop.changed, "lamp")
        await until(lambda: keys(anns) == ["lamp", "lamp"])
        assert len(keepers.asked) == asked + 1
        keepers.may.clear()
        await anyio.sleep(1.0)  # permits change once a second at most
        shop.app.permits_changed()
        await anyio.sleep(0.3)
        shop.app.tell(shop.changed, "lamp")
        shop.app.remove("tool", "look")
        await until(lambda: "notifications/tools/list_changed" in anns.kinds())
        await until(lambda: len(keepers.asked) == asked + 2)
        assert keys(anns) == ["lamp", "lamp"]
