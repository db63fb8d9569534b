"""`mcpfleet check`: what it shows of an application, and that no application can harm it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.cli.check import inspected, lines, run_check
from mcpfleet.cli.import_report import ImportReport

HEAD = "from mcpfleet.app import App\napp = App('shop', version='2')\n"
SHOP = f"""{HEAD}
@app.tool()
def find(text: str, limit: int = 10) -> str:
    '''Find something.

    At length.
    '''
    return text

@app.prompt()
def review(title: str, tone: str = 'kind') -> str:
    return title

@app.resource('shop://terms')
def terms() -> str:
    '''The terms.'''
    return ''

@app.resource('shop://items/{{number}}')
def item(number: int) -> str:
    return ''
"""
ASKING = """
from mcpfleet.app import App, Context
app = App('shop', version='2')
ORDERS: list[str] = []

@app.tool()
async def order(item: str, ctx: Context) -> str:
    '''Order something.'''
    ORDERS.append(item)
    await ctx.elicit('Where to?', {'type': 'object', 'properties': {'city': {'type': 'string'}}})
    return item
"""


def check(tmp_path: Path, text: str, within: float = 30.0) -> ImportReport:
    file = tmp_path / "shop.py"
    file.write_text(text)
    return inspected(str(file), within)


def test_all_that_an_application_declares_is_shown_with_signatures(tmp_path: Path) -> None:
    shown = lines(check(tmp_path, SHOP))
    assert shown == [
        f"shop 2 ({tmp_path / 'shop.py'})",
        "tools:",
        "  find(text: str, limit: int = 10)",
        "      Find something.",
        "prompts:",
        "  review(title, tone = …)",
        "resources:",
        "  shop://terms",
        "      The terms.",
        "templates:",
        "  shop://items/{number}",
    ]


def test_as_json_nothing_that_the_application_prints_is_between(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even what it writes to the descriptor of standard output."""
    file = tmp_path / "shop.py"
    file.write_text("import os\nprint('noise')\nos.write(1, b'more noise')\n" + SHOP)
    assert run_check(str(file), as_json=True, within=30.0) == 0
    said = capfd.readouterr()
    document: dict[str, Any] = json.loads(said.out)
    assert (document["ok"], document["name"], document["version"]) == (True, "shop", "2")
    assert [tool["signature"] for tool in document["tools"]] == ["find(text: str, limit: int = 10)"]
    assert (document["tools"][0]["file"], document["tools"][0]["line"]) == (str(file), 7)
    assert "noise" in said.err


def test_a_mistake_is_told_once_with_exit_code_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.py"
    file.write_text("import jsonn\n")
    assert run_check(str(file), as_json=False, within=30.0) == 2
    assert capfd.readouterr() == ("", f"{file}:1: no module 'jsonn': did you mean 'json'?\n")
    assert run_check(str(file), as_json=True, within=30.0) == 2
    document = json.loads(capfd.readouterr().out)
    assert (document["ok"], document["mistake"]["line"]) == (False, 1)


def test_what_is_probably_a_mistake_is_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.py"
    file.write_text(HEAD + "@app.tool(scopes=['shop:buy'])\ndef buy(item: int) -> int:\n    return item\n")
    assert run_check(str(file), as_json=False, within=30.0) == 0
    assert [line.split(": ", 1) for line in capfd.readouterr().err.splitlines()] == [
        ["warning", f"{file}:3: the tool 'buy' has no description: models choose by it"],
        ["warning", f"{file}:3: scopes are not enforced, since MCPFLEET_AUTHORIZATION is none: buy"],
    ]


@pytest.mark.rule("M53")
def test_effects_before_a_question_are_warnings_with_their_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The handler runs again from its top, and would repeat them."""
    file = tmp_path / "shop.py"
    file.write_text(ASKING)
    assert run_check(str(file), as_json=False, within=30.0) == 0
    told = "`ORDERS.append(item)` happens again after each answer to a question of 'order'"
    assert capfd.readouterr().err == f"warning: {file}:9: {told}: put it in ctx.step, or behind the question\n"


def test_a_lifespan_that_nobody_declares_is_a_mistake(tmp_path: Path) -> None:
    text = "from typing import Any\nfrom mcpfleet.app import App, Lifespan\napp = App('shop', version='2')\n"
    mistake = check(tmp_path, text + "@app.tool()\ndef buy(db: Lifespan[Any]) -> None:\n    '''Buy.'''\n").mistake
    assert mistake is not None
    assert (mistake.file, mistake.line) == (str(tmp_path / "shop.py"), 4)
    assert mistake.message.endswith(
        "shop.py:4: shop.buy: takes `Lifespan[…]`, and its App has no lifespan: declare one by @app.lifespan"
    )


def test_an_application_with_callers_has_its_scopes_enforced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCPFLEET_AUTHORIZATION", "static")
    file = tmp_path / "shop.py"
    file.write_text(
        HEAD + "@app.tool(scopes=['shop:buy'])\ndef buy(item: int) -> int:\n    '''Buy.'''\n    return item\n"
    )
    assert run_check(str(file), as_json=False, within=30.0) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "import time\n\nwhile True:\n    time.sleep(0.01)\n", "the import is not finished after", id="hangs"
        ),
        pytest.param("import os\nos._exit(3)\n", "the import ends its process with code 3", id="ends its process"),
        pytest.param("import os\nos.abort()\n", "the import ends its process with code -6", id="aborts"),
        pytest.param("import sys\nsys.exit()\n", "the module ends the process while it is imported", id="exits"),
    ],
)
def test_no_application_hangs_or_ends_the_check(tmp_path: Path, text: str, message: str) -> None:
    mistake = check(tmp_path, text, within=0.5).mistake
    assert mistake is not None
    assert message in mistake.message


def test_an_import_that_is_deaf_to_python_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks the signal that would tell it that its time is over."""
    monkeypatch.setattr("mcpfleet.cli.check._GRACE", 0.2)
    deaf = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\ntime.sleep(600)\n"
    mistake = check(tmp_path, deaf, within=0.2).mistake
    assert mistake is not None
    assert "outside of Python's code" in mistake.message


def test_threads_and_processes_of_an_application_hold_nothing_up(tmp_path: Path) -> None:
    start = "import subprocess, sys, threading, time\n"
    start += "threading.Thread(target=time.sleep, args=(600,)).start()\n"
    start += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], close_fds=False)\n"
    began = time.monotonic()
    assert check(tmp_path, start + SHOP).mistake is None
    assert time.monotonic() - began < 60
