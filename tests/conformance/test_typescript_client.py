"""The official TypeScript client does its work through either of two edges."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.kit.node import NODE, environment, install
from tests.kit.waiting import until

pytestmark = pytest.mark.conformance

PROJECT = Path(__file__).with_name("typescript")
PROGRAM = "steps.mjs"
CLIENT = "@modelcontextprotocol/client"
APP = Path(__file__).parents[1] / "fleet" / "app.py"
TOOLS = ["add", "count", "dawdle", "echo", "fail", "hold", "hold_thread", "persist", "refuse", "repeat", "whoami"]
LINE_ENDS = "a\u2028b\u2029c\u0085d\r\ne"

ENVIRONMENT = {"MCPFLEET_SLOTS": "1", "MCPFLEET_SILENT_AFTER": "0.5", "MCPFLEET_QUEUE_WAIT": "1"}
"""One slot, so that a step can have a call wait; a call that waits becomes a stream, and one without a worker ends."""

WITHIN = 30.0
"""Seconds that all runs of the program together may take."""

LEAVES = ("leaveSilent", "leaveStream", "leaveThread")
STEPS = (
    *("connect", "list", "call", "progress", *LEAVES, "toolError", "badArguments", "unknownTool"),
    *("lineEnds", "lineEndsInStream"),
)
DESERTED = ("connect", "list", "call")
"""The steps that are taken when no worker is left."""

each_edge = pytest.mark.parametrize("edge", [0, 1])


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that the client did, and what it showed."""

    step: str
    exchanges: list[dict[str, Any]]
    """Each HTTP request, by what was asked and how it was answered."""
    strays: list[dict[str, Any]]
    """The errors that the client reported to its handler meanwhile."""
    result: Any = None
    error: dict[str, Any] = field(default_factory=dict)
    """Empty where there is a result."""

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        [block] = self.result["content"]
        assert block["type"] == "text"
        return str(block["text"])

    @property
    def answers(self) -> list[tuple[str, int | None, str | None]]:
        """How each request was answered: its method, the status and the kind of content."""
        return [(asked["method"], asked["status"], asked["type"]) for asked in self.exchanges]


Run: TypeAlias = Mapping[str, Step]
"""The steps of one run of the program, by name."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of the runs against one fleet."""

    served: list[Run]
    """Through each edge, with a worker."""
    deserted: list[Run]
    """Through each edge, after the worker was killed."""
    worker: int
    """The worker's process."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run everything once; the tests only look at what came out."""
    return anyio.run(_run_all, _program(install(PROJECT), tmp_path_factory.mktemp("typescript")))


def _program(installed: Path, folder: Path) -> Path:
    """Put the program where Node finds its packages: it looks for them beside the program, and upwards."""
    (folder / "node_modules").symlink_to(installed / "node_modules")
    return Path(shutil.copy(PROJECT / PROGRAM, folder))


async def _run_all(program: Path) -> Outcome:
    async with Fleet(APP, edges=2, environment=ENVIRONMENT) as fleet:
        [worker] = fleet.workers
        with anyio.fail_after(WITHIN):
            served = [await _run(program, url, STEPS) for url in fleet.urls]
            await worker.kill()
            await until(lambda: not worker.is_running)
            deserted = [await _run(program, url, DESERTED) for url in fleet.urls]
        return Outcome(served=served, deserted=deserted, worker=worker.pid)


async def _run(program: Path, url: str, steps: tuple[str, ...]) -> Run:
    async with anyio.TemporaryDirectory(prefix="mcpfleet-typescript-") as folder:
        command = [str(NODE), str(program), url, folder, *steps]
        done = await anyio.run_process(command, env=environment(), check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    shown = [Step(**json.loads(line)) for line in done.stdout.splitlines()]
    assert tuple(step.step for step in shown) == steps
    return {step.step: step for step in shown}


@each_edge
def test_it_settles_on_2026_07_28_with_one_request(outcome: Outcome, edge: int) -> None:
    """T21: the first question is understood; neither a handshake nor a session follows."""
    step = outcome.served[edge]["connect"]
    assert step.result == {"version": "2026-07-28", "server": "fleet-tests", "session": None}, step.error
    assert step.answers == [("server/discover", 200, "application/json")]


@each_edge
def test_it_lists_the_tools_in_order(outcome: Outcome, edge: int) -> None:
    """M34: every tool, by name, from either edge."""
    step = outcome.served[edge]["list"]
    assert step.result == TOOLS == sorted(TOOLS), step.error


@each_edge
def test_a_result_has_structured_content(outcome: Outcome, edge: int) -> None:
    """It stands beside the text, and fits the output schema, against which this client checks it."""
    step = outcome.served[edge]["call"]
    assert (step.result["isError"], step.result["structuredContent"], step.text) == (False, 5, "5")
    assert step.answers == [("tools/call", 200, "application/json")]


@each_edge
def test_it_receives_progress_in_order(outcome: Outcome, edge: int) -> None:
    """P2, P5, M60: every report arrives once, the first even though it is 0, before the result."""
    step = outcome.served[edge]["progress"]
    assert step.result["seen"] == [{"progress": at, "total": 5, "message": f"step {at}"} for at in range(6)]
    assert step.result["result"]["content"] == [{"type": "text", "text": "counted to 5"}]
    assert step.answers == [("tools/call", 200, "text/event-stream")]


@each_edge
@pytest.mark.parametrize("leave", LEAVES)
def test_the_handler_hears_the_cancel_within_a_second(outcome: Outcome, edge: int, leave: str) -> None:
    """D12, P7: an abort ends the request and no message follows; the handler hears it, in the worker's process."""
    step = outcome.served[edge][leave]
    assert not step.error
    assert "AbortError" in step.result["error"]["message"]
    assert step.result["seconds"] <= 1.0
    assert step.result["process"] == outcome.worker
    assert [asked["method"] for asked in step.exchanges] == ["tools/call"]


@each_edge
def test_a_call_is_left_while_its_answer_streams(outcome: Outcome, edge: int) -> None:
    """P7: what the test above says of a stream was seen on one."""
    assert outcome.served[edge]["leaveStream"].answers == [("tools/call", 200, "text/event-stream")]


@each_edge
def test_a_tool_error_is_for_the_model(outcome: Outcome, edge: int) -> None:
    """D3: what the author says to the model arrives as it was said."""
    step = outcome.served[edge]["toolError"]
    assert (step.result["isError"], step.text) == (True, "the shop is closed")


@each_edge
def test_bad_arguments_are_for_the_model(outcome: Outcome, edge: int) -> None:
    """T11, group 14: a schema's failure is a result that names the field."""
    step = outcome.served[edge]["badArguments"]
    assert step.result["isError"]
    assert "left" in step.text


@each_edge
def test_an_unknown_tool_is_an_error_of_the_protocol(outcome: Outcome, edge: int) -> None:
    """T11, group 11: the client reads the code, since the status is 400."""
    step = outcome.served[edge]["unknownTool"]
    assert (step.error["kind"], step.error["code"]) == ("ProtocolError", -32602)
    assert step.answers == [("tools/call", 400, "application/json")]


@each_edge
@pytest.mark.parametrize(
    ("name", "content"), [("lineEnds", "application/json"), ("lineEndsInStream", "text/event-stream")]
)
def test_unicode_line_ends_arrive_as_they_are(outcome: Outcome, edge: int, name: str, content: str) -> None:
    """M12, D17: they break no event, in a stream that began with a comment, and no JSON."""
    step = outcome.served[edge][name]
    assert (step.result["isError"], step.text) == (False, LINE_ENDS)
    assert step.answers[-1] == ("tools/call", 200, content)


@each_edge
def test_the_client_reports_nothing_beside(outcome: Outcome, edge: int) -> None:
    """No part of an answer, nor what follows a call that was left, is strange to it."""
    assert [stray for step in outcome.served[edge].values() for stray in step.strays] == []


@each_edge
def test_without_a_worker_it_still_connects_and_lists(outcome: Outcome, edge: int) -> None:
    """D4: lists do not flap with workers."""
    run = outcome.deserted[edge]
    assert run["connect"].result == outcome.served[edge]["connect"].result
    assert run["list"].result == TOOLS


@each_edge
def test_without_a_worker_it_shows_a_503(outcome: Outcome, edge: int) -> None:
    """D4: it shows the status and the whole answer as text, hides the code, and does not try again by itself."""
    step = outcome.deserted[edge]["call"]
    assert (step.error["kind"], step.error["data"]["status"]) == ("SdkHttpError", 503)
    answer = json.loads(step.error["data"]["text"])["error"]
    assert answer["code"] == -32603
    assert "try again later" in step.error["message"]
    [asked] = step.exchanges
    assert asked["retryAfter"] == str(answer["data"]["retryAfter"])
    assert step.strays == [step.error]


def test_the_lock_holds_one_release_checks_contents_and_names_no_registry() -> None:
    """The client is the one that the tests are written for, from whichever registry a machine uses."""
    wanted = json.loads((PROJECT / "package.json").read_text())["dependencies"]
    packages = json.loads((PROJECT / "package-lock.json").read_text())["packages"]
    del packages[""]
    assert wanted == {CLIENT: "2.4.0"}
    assert packages[f"node_modules/{CLIENT}"]["version"] == wanted[CLIENT]
    assert [name for name, package in packages.items() if "integrity" not in package or "resolved" in package] == []
