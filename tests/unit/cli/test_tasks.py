"""`mcpfleet tasks …`: what people and operators see of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from typer.testing import CliRunner

from mcpfleet.cli.commands.group import app
from mcpfleet.cli.operate_tasks import show_listing
from mcpfleet.cli.task_client import NoResult, TaskClient
from mcpfleet.cli.task_commands import failed, show_state
from mcpfleet.contracts.operator_tasks import ListedTask, Listing
from mcpfleet.contracts.tasks import Status

URL, TASK = "http://127.0.0.1:9/mcp", "t" * 32


class Server:
    """Answers with one body after another, as a transport of the HTTP client."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies = list(bodies)
        self.asked: list[httpx2.Request] = []

    def client(self) -> TaskClient:
        return TaskClient(URL, timeout=1, transport=httpx2.MockTransport(self.answer))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return httpx2.Response(200, json=self.bodies.pop(0))


def result(**fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "taskId": TASK, **fields}}


async def test_a_request_names_its_task_and_declares_the_extension() -> None:
    server = Server(result(status="working"))
    assert (await server.client().ask("tasks/get", TASK))["status"] == "working"
    (request,) = server.asked
    assert (request.headers["mcp-method"], request.headers["mcp-name"]) == ("tasks/get", TASK)
    meta = json.loads(request.content)["params"]["_meta"]
    capabilities = meta["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities["extensions"] == {"io.modelcontextprotocol/tasks": {}}


async def test_a_token_in_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server = Server(result(status="working"), result(status="working"))
    client = TaskClient(URL, timeout=1, token=f"@{token}", transport=httpx2.MockTransport(server.answer))
    await client.ask("tasks/get", TASK)
    token.write_text("second\n")
    await client.ask("tasks/get", TASK)
    assert [request.headers["authorization"] for request in server.asked] == ["Bearer first", "Bearer second"]


async def test_each_change_is_shown_once_until_the_end() -> None:
    states = [
        result(status="working", pollIntervalMs=1),
        result(status="working", pollIntervalMs=1),
        result(status="input_required", pollIntervalMs=1, inputRequests={"month": {}}),
        result(status="working", statusMessage="2/3", pollIntervalMs=1),
        result(status="completed", result={}),
    ]
    seen: list[Any] = []
    with anyio.fail_after(5):
        await Server(*states).client().watch(TASK, lambda state: seen.append(state["status"]))
    assert seen == ["working", "input_required", "working", "completed"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "Task not found"}}, r"not found \(-32602\)"),
        ({"hello": "world"}, "does not answer as an MCP server"),
        ([], "does not answer as an MCP server"),
    ],
)
async def test_what_is_no_result_is_a_sentence(body: Any, sentence: str) -> None:
    with pytest.raises(NoResult, match=sentence):
        await Server(body).client().ask("tasks/get", TASK)


@pytest.mark.parametrize(
    ("task", "is_failure"),
    [
        ({"status": "working"}, False),
        ({"status": "completed", "result": {"isError": False}}, False),
        ({"status": "completed", "result": {"isError": True}}, True),
        ({"status": "failed", "error": {}}, True),
        ({"status": "cancelled"}, True),
    ],
)
def test_the_exit_code_says_whether_the_task_came_to_its_end(task: dict[str, Any], is_failure: bool) -> None:
    assert failed(task) is is_failure


def test_a_task_is_shown_with_its_questions_and_the_commands_that_answer_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = {"properties": {"number": {"type": "integer", "maximum": 12}}, "required": ["number"]}
    question = {"method": "elicitation/create", "params": {"message": "Which month?", "requestedSchema": schema}}
    state = {"taskId": TASK, "status": "input_required", "statusMessage": "half", "inputRequests": {"month": question}}
    show_state(state, URL)
    assert capsys.readouterr().out.splitlines() == [
        "input_required half waits for: month",
        "  month: Which month?",
        "    number (integer, required, at most 12)",
        f"  answer: mcpfleet tasks answer {URL} {TASK} month number=…",
        f"  or:     mcpfleet tasks answer {URL} {TASK} month --decline",
    ]


async def test_a_question_is_answered_once_and_given_up_when_somebody_else_answers() -> None:
    states = [
        result(status="input_required", pollIntervalMs=1, inputRequests={"month": {}}),
        result(status="input_required", pollIntervalMs=1, inputRequests={"month": {}}),
        result(status="working", pollIntervalMs=1),
        result(status="completed", result={}),
    ]
    asked: list[str] = []
    cancelled = anyio.Event()

    async def answer(key: str, request: Any) -> None:
        asked.append(key)
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with anyio.fail_after(5):
        await Server(*states).client().watch(TASK, lambda _: None, answer)
    assert (asked, cancelled.is_set()) == (["month"], True)


def test_an_operators_list_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    listed = ListedTask(
        id=TASK, endpoint="mcp", pool="library", name="report", definition="d", status=Status.WORKING, holder="w1",
        attempts=2, age=7300, quiet=5, cancel_asked=True,
    )  # fmt: skip
    show_listing(Listing(tasks=(listed,), more=True))
    printed = capsys.readouterr().out
    for word in (TASK, "report", "w1", "2 h", "5 s", "cancel requested", "more tasks exist"):
        assert word in printed
    show_listing(Listing())
    assert "no tasks" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_named_without_a_traceback() -> None:
    done = CliRunner().invoke(app, ["tasks", "get", URL, TASK])
    assert done.exit_code == 1
    assert URL in done.stderr
    assert "Traceback" not in done.output


def test_the_commands_are_listed() -> None:
    shown = CliRunner().invoke(app, ["tasks", "--help"]).output
    for command in ("start", "answer", "get", "cancel", "watch", "list", "stop"):
        assert command in shown


def test_what_is_no_id_is_told_without_a_traceback_and_without_a_bus() -> None:
    done = CliRunner().invoke(app, ["tasks", "stop", "nonsense"])
    assert done.exit_code == 1
    assert "not a task's id" in done.stderr
