"""The start of `mcpfleet dev`: a worker imports the application first, and few lines say how to use the fleet."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from psutil import pid_exists

from mcpfleet.cli.child import Child
from mcpfleet.cli.dev_screen import example_call, say_ready
from mcpfleet.cli.first_worker import importing
from mcpfleet.cli.import_report import Declared, Finding, ImportReport
from mcpfleet.process.errors import ConfigurationError

TOOL = Declared(kind="tool", name="buy", wire={})
URLS = [f"http://127.0.0.1:{port}/mcp" for port in range(8000, 8005)]


@pytest.mark.parametrize("edges", [1, 2, 3, 5])
@pytest.mark.parametrize("warnings", [0, 1, 5])
def test_a_start_is_at_most_six_lines(edges: int, warnings: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = [Finding(message=f"mistake {number}") for number in range(warnings)]
    say_ready(URLS[:edges], "http://c", ImportReport(target="shop.py", declared=(TOOL,), warnings=tuple(found)))
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [word for line in lines for word in line.split()[1:]] == URLS[:edges]
    assert {line.split()[0] for line in lines} == {"ready"}
    lines += said.err.splitlines()
    assert len(lines) <= 6, lines
    assert any(line.startswith("warning ") for line in lines) == bool(warnings)
    assert ("`mcpfleet check` shows" in lines[-1]) == (warnings == 5)


def tool(name: str, *needed: str, **hints: bool) -> Declared:
    properties = {each: {"type": "string"} for each in needed}
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    return Declared(kind="tool", name=name, wire={"inputSchema": schema, "annotations": hints})


@pytest.mark.parametrize(
    ("tools", "tried"),
    [
        ([tool("add", "item"), tool("stock")], "stock"),
        ([tool("add", "item"), tool("find", "item", readOnlyHint=True), tool("stock")], "find"),
        ([tool("clear", destructiveHint=True), tool("add", "item")], "add"),
        ([tool("zip", "item"), tool("add", "item")], "zip"),
    ],
)
def test_the_call_to_try_does_no_harm_and_is_the_first_of_its_kind(tools: list[Declared], tried: str) -> None:
    """A tool that only reads, or that needs no argument; else the first that is declared."""
    call = example_call("URL", ImportReport(target="shop.py", declared=tuple(tools)))
    assert call is not None
    assert call.split()[3] == tried


def test_a_program_that_starts_the_fleet_is_told_no_hints(capsys: pytest.CaptureFixture[str]) -> None:
    """As `mcpfleet stdio` does: its log is for what goes wrong."""
    found = (Finding(message="a mistake"),)
    say_ready(URLS[:1], "http://c", ImportReport(target="shop.py", declared=(TOOL,), warnings=found), hints=False)
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"ready {URLS[0]}\n", "warning  a mistake\n")


async def test_an_import_that_ends_its_process_is_told_by_its_code(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("import os\nos._exit(3)\n")
    async with importing(str(file)) as first:
        with pytest.raises(ConfigurationError, match="the import ends its process with code 3"):
            await first.hear()


@pytest.mark.rule("X17")
async def test_a_worker_of_dev_takes_documents_that_connect_to_this_machine(tmp_path: Path) -> None:
    """Everywhere else that is a mistake of the declaration."""
    file = tmp_path / "shop.py"
    text = "from mcpfleet.app import App, Csp\napp = App('shop', version='1')\n"
    file.write_text(f"{text}Csp(connect=['http://localhost:5173'])\n")
    async with importing(str(file)) as first:
        await first.hear()
        assert first.report.mistake is None


async def test_a_first_worker_that_no_fleet_takes_ends_with_its_block(tmp_path: Path) -> None:
    """Whatever it prints meanwhile does not hold it up."""
    file, told = tmp_path / "shop.py", tmp_path / "pid"
    text = "import os\nfrom mcpfleet.app import App\napp = App('My Shop', version='1')\nprint('x' * 1_000_000)\n"
    file.write_text(f"{text}open({str(told)!r}, 'w').write(str(os.getpid()))\n")
    async with importing(str(file)) as first:
        await first.hear()
        assert (first.report.name, first.report.files) == ("My Shop", (str(file),))
        pid = int(told.read_text())
        assert pid_exists(pid)
    assert not pid_exists(pid)


async def test_a_first_worker_reads_its_variables_late_and_stands_for_a_worker_once(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("from mcpfleet.app import App\napp = App('shop', version='1')\n")
    async with importing(str(file)) as first:
        await first.hear()
        worker = Child("worker 1", ["true"], {"MCPFLEET_NATS_URL": "nats://a:b@127.0.0.1:1"})
        first.stand_for(worker)
        await worker.start()
        pid = worker.pid
        with anyio.fail_after(60):
            assert await worker.listen() == 2  # one of its variables is wrong
        await worker.start()
        assert worker.pid != pid
        await worker.wait()
