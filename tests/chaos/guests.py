"""Clients of 2025 that do this and that in their sessions, each time at another edge, and judge what they are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2

from mcpfleet.wire.protocol import LEGACY
from tests.contract.fleet.visitor import Visitor, Watching

TOLD_WITHIN: Final = 20.0
"""Seconds in which whatever is done has an outcome; more than any wait of the fleet's."""
SOON: Final = 2.5
"""Seconds in which a stream tells what has changed, where nothing dies."""
HELD_UP: Final = 2.0
"""Seconds after which what went to an edge that died is said again."""
ANSWERS: Final = {
    "elicitation/create": {"action": "accept", "content": {"copies": 3}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}
AWAY: Final = (
    "the subscriptions service did not answer in time",
    "the subscriptions service could not do this now",
    "No capacity",
)
"""How errors begin while subscriptions is away, or no worker has room."""
NOT_ANSWERED: Final = "did not answer in time"
_LOOK_AGAIN: Final = 0.01


class Wrong(Exception):
    """Raised when a client was told what cannot be right."""


class Cut(Exception):
    """Raised when an edge died with a request, or a service was away: the client may try again."""


class Guest(Visitor):
    """One client; its session is there from `arrive` to `leave`."""

    def __init__(
        self, https: Sequence[httpx2.AsyncClient], edge: Callable[[], int], quakes: Callable[[], int], seed: float
    ) -> None:
        """Have no session yet.

        Args:
            https: the edges, some of which are dead.
            edge: chooses one that lives.
            quakes: a number that grows when something dies; what is on its way then may be lost.
            seed: decides what it does.
        """
        self._chance = random.Random(seed)
        super().__init__(https, version=self._chance.choice(LEGACY))
        self._edge = edge
        self._quakes = quakes
        self.answers = dict(ANSWERS)
        self._unheard = 0
        """Answers that no edge took."""
        self._books = self._chance.randrange(10**9)

    async def arrive(self) -> None:
        """Shake hands."""
        params = {"protocolVersion": self.version, "capabilities": dict(self._capabilities), "clientInfo": {}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        try:
            response = await self.send(message, self._edge())
        except httpx2.HTTPError as error:
            raise Cut(type(error).__name__) from None
        if response.status_code == 503:
            raise Cut("No capacity")
        if response.status_code == 504 and NOT_ANSWERED in response.text:  # a busy machine's services are slow, too
            raise Cut(NOT_ANSWERED)
        if response.status_code != 200 or "mcp-session-id" not in response.headers:
            raise Wrong(f"a handshake was told {response.status_code} {response.text}")
        self.session = response.headers["mcp-session-id"]

    async def do(self) -> str:
        """Do one thing; returns which, and how it ended.

        Raises:
            Wrong: it did not end as it may.
        """
        ways = (self.chat, self.order, self.interview, self.take_back, self.set_level, self.follow, self.replace)
        return await self.do_this(self._chance.choice(ways))

    async def leave(self) -> str:
        """End the session, or leave it behind; as `do`."""
        return await self.do_this(self.end_session if self._chance.random() < 0.6 else self.vanish)

    async def do_this(self, way: Callable[[], Any]) -> str:
        """Do one thing in time; as `do`."""
        name = way.__name__.replace("_", " ")
        try:
            async with asyncio.timeout(TOLD_WITHIN):
                await way()
        except TimeoutError:
            raise Wrong(f"{name}: no outcome") from None
        except (Cut, Wrong, ExceptionGroup) as error:
            why = _leaf(error)
            if isinstance(why, Cut):
                return f"{name}: {why}"
            raise why from None
        return name

    # -- calls --------------------------------------------------------------------------------------------------------

    async def chat(self) -> None:
        """Call a tool that says something meanwhile."""
        await self._called("chat", {}, "said")

    async def order(self) -> None:
        """Be asked once."""
        title = f"book {self._chance.random()}"
        await self._called("order", {"title": title}, f"3 of {title}, soft")

    async def interview(self) -> None:
        """Be asked three things at once, and then another."""
        await self._called("interview", {}, "3 hello 1 3")

    async def set_level(self) -> None:
        """Change the session."""
        await self._asked("logging/setLevel", {"level": self._chance.choice(["debug", "error"])})

    async def take_back(self) -> None:
        """Take a call back at any edge; it ends without a result."""
        name = f"mine {self._chance.random()}"
        params = {"name": "linger", "arguments": {}, "_meta": {"progressToken": name}}
        answers: list[Any] = []
        quakes = self._quakes()
        self.told.clear()

        async def wait() -> None:
            answers.append(await self._asked("tools/call", params, name))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await _until(lambda: self.told or answers)
            while not answers:
                await self._say_once("notifications/cancelled", {"requestId": name}, lambda: answers)
        if answers[0] is not None and self._quakes() > quakes:
            raise Cut("not heard")
        if answers != [None]:
            raise Wrong(f"a call that was taken back was told {answers[0]}")

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Subscribe at another edge than the stream's, and have a third one change it: it is told."""
        self._books += 1
        uri = f"library://books/{self._books}"
        quakes = self._quakes()
        async with self._stream() as watching:
            await self._asked("resources/unsubscribe", {"uri": f"library://books/{self._books - 1}"})
            await self._asked("resources/subscribe", {"uri": uri})
            before = len(watching.uris())
            await self._called("place_hold", {"book": self._books}, "held")
            await self._unless_quake(
                lambda: uri in watching.uris()[before:] or watching.is_over, quakes, "follow: not told"
            )
            if watching.is_over and self._quakes() == quakes:
                raise Wrong("follow: a stream ended by itself")

    async def replace(self) -> None:
        """Open three streams, of which the third ends the first; then each that is cut lets the one before speak."""
        quakes = self._quakes()
        async with self._stream() as first, self._stream() as second:
            async with self._stream() as third:
                streams = (first, second, third)
                await self._unless_quake(lambda: any(each.is_over for each in streams), quakes, "replace: none ended")
                if self._quakes() == quakes and (second.is_over or third.is_over or not first.is_over):
                    raise Wrong("replace: another stream ended than the oldest")
            self._books += 1
            uri = f"library://books/{self._books}"
            await self._asked("resources/subscribe", {"uri": uri})
            await self._called("place_hold", {"book": self._books}, "held")
            await self._unless_quake(lambda: uri in second.uris() or second.is_over, quakes, "replace: not told")

    async def _unless_quake(self, holds: Callable[[], object], quakes: int, wrong: str) -> None:
        """Wait until it holds; where something has died since there were so many quakes, it need not."""
        with anyio.move_on_after(SOON):
            await _until(lambda: holds() or self._quakes() > quakes)
            return
        raise Wrong(wrong)

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[Watching]:
        watching = Watching()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, watching)
            await _until(lambda: watching.status or watching.is_over)
            if watching.status in (0, 503, 504):
                raise Cut(f"a stream: {watching.status}")
            if watching.status != 200:
                raise Wrong(f"a stream was told {watching.status}")
            yield watching
            tasks.cancel_scope.cancel()

    async def _read(self, watching: Watching) -> None:
        try:
            await self.watch(watching, self._edge())
        except httpx2.HTTPError:
            return  # its edge has died

    # -- the end ------------------------------------------------------------------------------------------------------

    async def vanish(self) -> None:
        """Leave the session behind, with a stream and a question that is open."""
        with anyio.move_on_after(0.3 * self._chance.random()):
            async with self._stream():
                await self.order()

    async def end_session(self) -> None:
        """End the session; then it is unknown, at every edge."""
        status = 0
        while status not in (204, 404):  # 404 where the answer before was lost
            try:
                status = await self.delete(self._edge())
            except httpx2.HTTPError:
                continue
            if status not in (204, 404, 503, 504):
                raise Wrong(f"a DELETE was told {status}")
        while True:
            try:
                found = await self.ask("ping", edge=self._edge())
            except httpx2.HTTPError:
                continue
            if found == 404:
                return
            if found not in (503, 504) and not isinstance(found, dict):
                raise Wrong(f"a ping in a session that is over was told {found}")
            await anyio.sleep(_LOOK_AGAIN)  # an edge may go by what it knew until the hint is there

    # -- what is told -------------------------------------------------------------------------------------------------

    async def answer(self, identifier: Any, result: Any) -> None:
        """Think for a moment, and answer at any edge; where that dies, at another."""
        await anyio.sleep(0.2 * self._chance.random())
        for _ in range(5):
            try:
                response = await self.send({"jsonrpc": "2.0", "id": identifier, "result": result}, self._edge())
            except httpx2.HTTPError:
                continue
            if response.status_code == 202:
                return
            if response.status_code not in (503, 504):
                raise Wrong(f"an answer was told {response.status_code}")
        self._unheard += 1

    async def _say_once(self, method: str, params: Any, has_come: Callable[[], object]) -> None:
        """Notify, and wait for what comes of it; where something died meanwhile, not for long."""
        quakes = self._quakes()
        if not await self._say(method, params):
            return
        await _until(lambda: has_come() or self._quakes() > quakes)
        with anyio.move_on_after(HELD_UP):
            await _until(has_come)

    async def _say(self, method: str, params: Any) -> bool:
        """Notify; returns whether it was taken."""
        try:
            response = await self.notify(method, params, self._edge())
        except httpx2.HTTPError:
            await anyio.sleep(_LOOK_AGAIN)
            return False
        if response.status_code not in (202, 503, 504):
            raise Wrong(f"{method} was told {response.status_code}")
        return response.status_code == 202

    async def _asked(self, method: str, params: Any, identifier: Any = None) -> Any:
        """Ask; returns the result, or None where the answer ends without one."""
        try:
            found = await self.ask(method, params, self._edge(), identifier)
        except httpx2.HTTPError as error:
            raise Cut(type(error).__name__) from None
        if found is None:
            return None
        if not isinstance(found, dict):
            raise Wrong(f"{method} was told {found} in a session that lives")
        if "result" not in found:
            why = found["error"]["message"]
            raise Cut(why.partition(":")[0].partition(";")[0]) if why.startswith(AWAY) else Wrong(f"{method}: {why}")
        return found["result"]

    async def _called(self, tool: str, arguments: Any, wanted: str) -> None:
        self._unheard, quakes = 0, self._quakes()
        result = await self._asked("tools/call", {"name": tool, "arguments": arguments})
        if result is None:
            raise Wrong(f"{tool} ended without a result")
        text, failed = result["content"][0]["text"], result.get("isError", False)
        if failed and NOT_ANSWERED in text and (self._unheard or self._quakes() > quakes):
            raise Cut("not answered")
        if failed or text != wanted:
            raise Wrong(f"{tool} was told {text}")


async def _until(holds: Callable[[], object]) -> None:
    """Wait until it holds; the caller has a bound of its own."""
    while not holds():  # noqa: ASYNC110  # nothing announces it
        await anyio.sleep(_LOOK_AGAIN)


def _leaf(error: BaseException) -> BaseException:
    """Return the error inside of groups; where there are several, one that is wrong."""
    while isinstance(error, BaseExceptionGroup):
        error = next((each for each in error.exceptions if not isinstance(each, Cut)), error.exceptions[0])
    return error
