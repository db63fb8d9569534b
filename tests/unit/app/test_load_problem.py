"""The sentences about a target that cannot be loaded: the place, the mistake, and what was probably meant."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpfleet.app import load
from mcpfleet.app.load_problem import LoadProblem, load_problem


@pytest.fixture(autouse=True)
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in a folder of its own, and undo what a load leaves in the interpreter."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    importlib.invalidate_caches()


def problem(text: str, name: str = "zz_shop") -> LoadProblem:
    """Load a file with this text, and explain why that fails."""
    Path(f"{name}.py").write_text(text)
    with pytest.raises(BaseException) as raised:  # noqa: PT011  # whatever the file raises
        load(f"{name}.py")
    return load_problem(f"{name}.py", raised.value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param("x = 1\nf(\n", 2, "zz_shop.py:2: SyntaxError: '(' was never closed", id="a syntax error"),
        pytest.param("prnt(1)\n", 1, "zz_shop.py:1: NameError: name 'prnt' is not defined", id="a typo"),
        pytest.param(
            "import zz_nowhere\n", 1, "zz_shop.py:1: no module 'zz_nowhere': install its package", id="no such module"
        ),
        pytest.param(
            "import jsonn\n", 1, "zz_shop.py:1: no module 'jsonn': did you mean 'json'?", id="nearly a module"
        ),
        pytest.param(
            "import json.zz\n", 1, "zz_shop.py:1: no module 'json.zz': 'json' has no 'zz'", id="no such submodule"
        ),
        pytest.param(
            "\nfrom mcpfleet.app import Appp\n",
            2,
            "zz_shop.py:2: 'mcpfleet.app' has no 'Appp': did you mean 'App'?",
            id="nearly a name of ours",
        ),
        pytest.param(
            "import sys\nsys.exit(3)\n",
            2,
            "zz_shop.py:2: the module ends the process while it is imported (SystemExit: 3)",
            id="an end of the process",
        ),
        pytest.param(
            "from mcpfleet.app import App\napp = App('a', version='1')\n\n@app.tool()\ndef f(x): ...\n",
            4,
            "zz_shop.py:4: zz_shop.f, parameter 'x': has no annotation",
            id="a declaration",
        ),
    ],
)
def test_a_mistake_is_one_line_that_begins_with_its_place(text: str, line: int, message: str) -> None:
    found = problem(text)
    assert found.message.startswith(message)
    assert "\n" not in found.message
    assert (Path(found.file or "").name, found.line) == ("zz_shop.py", line)


def test_an_error_within_calls_has_the_authors_own_frames_alone() -> None:
    found = problem("import json\n\ndef helper():\n    return json.loads('{')\n\nhelper()\n")
    assert found.message.startswith("zz_shop.py:4: json.decoder.JSONDecodeError: ")
    assert [line for line in found.traceback.splitlines() if "zz_shop" in line] == [
        f'  File "{Path.cwd()}/zz_shop.py", line 6, in <module>',
        f'  File "{Path.cwd()}/zz_shop.py", line 4, in helper',
    ]
    assert "json/decoder.py" not in found.traceback


def test_a_mistake_in_an_imported_module_has_that_modules_place_and_the_way_there() -> None:
    Path("zz_data.py").write_text("\nNAMES = [\n")
    found = problem("import zz_data\n")
    assert found.message == "zz_data.py:2: SyntaxError: '[' was never closed"
    assert f'File "{Path.cwd()}/zz_shop.py", line 1' in found.traceback
    assert "loading.py" not in found.traceback
    assert "frozen" not in found.traceback


def test_an_error_with_a_cause_shows_both() -> None:
    found = problem("try:\n    {}['key']\nexcept KeyError as error:\n    raise RuntimeError('no key') from error\n")
    assert found.message == "zz_shop.py:4: RuntimeError: no key"
    assert "KeyError: 'key'" in found.traceback


def test_several_apps_are_named_with_their_lines_and_the_remedy() -> None:
    found = problem("from mcpfleet.app import App\na = App('a', version='1')\n\nb: App = App('b', version='1')\n")
    assert found.text == "zz_shop.py: zz_shop has several Apps (a, line 2; b, line 4): add one, as `:a`"
