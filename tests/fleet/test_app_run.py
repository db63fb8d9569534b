"""`app.run()`: an application that is started as a program runs the whole system, on HTTP or on two pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client

from tests.kit.piped import WITHIN, piped

MODULE = """
from mcpfleet.app import App
print("imported")
app = App("shop", version="1")

@app.tool()
def double(number: int) -> int:
    \"\"\"Double a number.\"\"\"
    return 2 * number
"""
MAIN = """
from mypkg.server import app

if __name__ == "__main__":
    app.run(port=0, reload=False)
    print("over")
"""
GUARDED = MODULE + '\nif __name__ == "__main__":\n    app.run({arguments})\n'


@contextmanager
def program(*words: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program of Python for the length of a block."""
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=directory,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def ready(process: subprocess.Popen[str]) -> str:
    """Return the URL once the system is ready."""
    assert process.stdout is not None
    with anyio.fail_after(WITHIN):
        while not (line := await anyio.to_thread.run_sync(process.stdout.readline)).startswith("ready "):
            assert process.poll() is None
    return line.split()[1]


async def test_a_package_that_was_started_serves_http_until_it_is_told_to_end(tmp_path: Path) -> None:
    """`python -m mypkg`: its `__main__` runs the App of another module."""
    package = tmp_path / "mypkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "server.py").write_text(MODULE)
    (package / "__main__.py").write_text(MAIN)
    with program("-m", "mypkg", directory=tmp_path) as process:
        async with Client(await ready(process)) as client:
            assert (await client.call_tool("double", {"number": 4})).structured_content == 8
        process.send_signal(signal.SIGTERM)
        said, log = await anyio.to_thread.run_sync(process.communicate)
    assert (process.returncode, said.rstrip().endswith("over")) == (0, True), log


@pytest.mark.rule("B32")
async def test_a_file_that_was_started_serves_its_two_pipes(tmp_path: Path) -> None:
    """The log has what the module printed before."""
    (tmp_path / "shop.py").write_text(GUARDED.format(arguments='transport="stdio"'))
    async with piped(str(tmp_path / "shop.py")) as process:
        process.ask(1, "tools/call", name="double", arguments={"number": 4})
        said = await process.hear()
        assert (said["id"], said["result"]["structuredContent"]) == (1, 8)
        _, rest, log = await process.end()
    assert (process.process.returncode, rest) == (0, b"")
    assert log.count(b"imported") == 2, "by the program, and by its worker"


async def test_a_module_without_the_guard_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE + "\napp.run(port=0)\n")
    with program("shop.py", directory=tmp_path) as process:
        with anyio.fail_after(WITHIN):
            said, log = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 2
    assert 'put it below `if __name__ == "__main__":`' in log
    assert said.splitlines().count("imported") == 2, "no process started another system"
