"""`App.run`: which target its workers get, and where it refuses to run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mcpfleet.app import App, RunError, load

MODULE = """
from mcpfleet.app import App
app = App("shop", version="1")
"""
SAY = """
from mcpfleet.app.run import target_of
print(target_of(app))
"""


def python(*words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_file_that_was_started_is_the_target(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE.replace("app =", "mine = other =") + SAY.replace("(app)", "(mine)"))
    assert python(str(tmp_path / "shop.py"), directory=Path("/")).stdout == f"{tmp_path}/shop.py:mine\n"


def test_a_module_that_was_imported_counts_before_the_one_that_was_started(tmp_path: Path) -> None:
    """`python main.py`, where the App is in another module of the folder: a worker need not import `main` again."""
    (tmp_path / "server.py").write_text(MODULE)
    (tmp_path / "main.py").write_text("from server import app\n" + SAY)
    assert python(str(tmp_path / "main.py"), directory=Path("/")).stdout == f"{tmp_path}/server.py:app\n"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"__init__": "", "__main__": MODULE + SAY}, "__main__.py"),
        ({"__init__": MODULE, "__main__": "from mypkg import app\n" + SAY}, "__init__.py"),
        ({"__init__": "", "server": MODULE, "__main__": "from .server import app\n" + SAY}, "server.py"),
    ],
)
def test_a_package_that_was_started_is_found(files: dict[str, str], place: str, tmp_path: Path) -> None:
    package = tmp_path / "mypkg"
    package.mkdir()
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    said = python("-m", "mypkg", directory=tmp_path)
    assert said.stdout == f"{package}/{place}:app\n", said.stderr


def test_a_module_without_a_package_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "server.py").write_text(MODULE)
    (tmp_path / "main.py").write_text("from space.server import app\n" + SAY)
    assert python("main.py", directory=tmp_path).stdout == "space.server:app\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-c", MODULE + "app.run()"], "needs a module that its workers can import"),
        (["-c", MODULE + "def main():\n    App('local', version='1').run()\nmain()"], "found no name for the App"),
        (["my-shop.py"], "'my-shop' is not a module name"),
        (["shop"], "save the App in a file that ends in .py"),
        (["-c", MODULE + "import asyncio\nasync def main():\n    app.run()\nasyncio.run(main())"], "of its own"),
        (["-c", MODULE + "app.run('sse')"], "unknown transport 'sse'"),
        (["-c", MODULE + "app.run('stdio', port=1)"], "port: only for the transport 'http'"),
    ],
)
def test_where_it_cannot_run_it_says_so(words: list[str], says: str, tmp_path: Path) -> None:
    for name in ("my-shop.py", "shop"):
        (tmp_path / name).write_text(MODULE + "app.run()\n")
    said = python(*words, directory=tmp_path)
    assert said.returncode == 1
    assert says in said.stderr


def test_a_module_that_runs_itself_at_an_import_is_told_of_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker imports the module. Without this check each would start a whole system, and so on."""
    (tmp_path / "unguarded_shop.py").write_text(MODULE + "app.run()\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(RunError, match='if __name__ == "__main__":'):
        load(str(tmp_path / "unguarded_shop.py"))


def test_another_thread_is_no_place(tmp_path: Path) -> None:
    app, raised = App("shop", version="1"), []

    def run() -> None:
        try:
            app.run()
        except RunError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "main thread" in raised[0]


def test_a_loop_that_runs_is_no_place() -> None:
    async def run() -> None:
        App("shop", version="1").run()

    with pytest.raises(RunError, match="outside of async functions"):
        asyncio.run(run())
