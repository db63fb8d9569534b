"""From a target on the command line to its App."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpfleet.app import DeclarationError, LoadError, load

APP = "from mcpfleet.app import App\napp = App({name!r}, version='1')\n"


@pytest.fixture(autouse=True)
def imports() -> Iterator[None]:
    """Undo what a load leaves in the interpreter."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(path: Path, text: str = APP.format(name="books")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_loaded(tmp_path: Path) -> None:
    assert load(str(write(tmp_path / "zz_books.py"))).name == "books"


def test_a_file_is_loaded_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "apps" / "zz_books.py")
    monkeypatch.chdir(tmp_path)
    assert load("apps/zz_books.py").name == "books"


def test_a_file_has_the_same_module_name_wherever_it_is_loaded_from(tmp_path: Path) -> None:
    load(str(write(tmp_path / "zz_books.py")))
    assert "zz_books" in sys.modules


def test_a_files_folder_is_importable(tmp_path: Path) -> None:
    write(tmp_path / "zz_data.py", "NAME = 'from a sibling'\n")
    target = write(tmp_path / "zz_books.py", "import zz_data\n" + APP.replace("{name!r}", "zz_data.NAME"))
    assert load(str(target)).name == "from a sibling"


def test_a_file_in_a_package_may_import_relatively(tmp_path: Path) -> None:
    write(tmp_path / "zz_package" / "__init__.py", "")
    write(tmp_path / "zz_package" / "data.py", "NAME = 'relative'\n")
    text = "from .data import NAME\n" + APP.replace("{name!r}", "NAME")
    target = write(tmp_path / "zz_package" / "books.py", text)
    assert load(str(target)).name == "relative"
    assert "zz_package.books" in sys.modules


def test_a_module_is_loaded_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "zz_books.py")
    monkeypatch.chdir(tmp_path)
    assert load("zz_books").name == "books"
    assert load("zz_books:app") is load("zz_books")


def test_an_attribute_chooses_among_several(tmp_path: Path) -> None:
    text = APP.format(name="first") + "class Shelf:\n    other = App('second', version='1')\n"
    target = write(tmp_path / "zz_books.py", text)
    assert load(f"{target}:app").name == "first"
    assert load(f"{target}:Shelf.other").name == "second"


def test_the_one_called_app_is_preferred(tmp_path: Path) -> None:
    text = "from mcpfleet.app import App\nzoo = App('zoo', version='1')\napp = App('app', version='1')\n"
    assert load(str(write(tmp_path / "zz_books.py", text))).name == "app"


def test_one_app_under_two_names_is_one(tmp_path: Path) -> None:
    text = "from mcpfleet.app import App\nfirst = second = App('one', version='1')\n"
    assert load(str(write(tmp_path / "zz_books.py", text))).name == "one"


def test_an_app_that_another_includes_is_no_choice(tmp_path: Path) -> None:
    text = "from mcpfleet.app import App\nouter, inner = App('outer'), App('inner')\nouter.include(inner)\n"
    assert load(str(write(tmp_path / "zz_two_books.py", text))).name == "outer"


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        pytest.param("", "{file}", "no App at its top level", id="no App"),
        pytest.param(
            "from mcpfleet.app import App\na = App('a', version='1')\nb = App('b', version='1')\n",
            "{file}",
            r"several Apps \(a, line 2; b, line 3\)",
            id="several",
        ),
        pytest.param("x = 5\n", "{file}:x", "'x' is a int, not an App", id="attribute of another type"),
        pytest.param("x = 5\n", "{file}:y", "no attribute 'y'", id="no such attribute"),
        pytest.param(
            "from mcpfleet.app import App\nshop = App('a', version='1')\n",
            "{file}:ap",
            "no attribute 'ap'; its App is 'shop'",
            id="almost an App",
        ),
        pytest.param("", "{folder}/zz_lost.py", "no file .*zz_lost.py", id="no such file"),
        pytest.param("", "zz_lost", "no module 'zz_lost'", id="no such module"),
        pytest.param("", "zz_lost.inner:app", "no module 'zz_lost'", id="no such package"),
        pytest.param("", "json.zz_lost", "no module 'json.zz_lost'", id="no such submodule"),
        pytest.param("", "apps/library", "neither a file", id="a path without .py"),
        pytest.param("", "", "neither a file", id="nothing"),
    ],
)
def test_what_leads_to_no_app_is_named(tmp_path: Path, text: str, target: str, why: str) -> None:
    file = write(tmp_path / "zz_books.py", text)
    with pytest.raises(LoadError, match=why):
        load(target.format(file=file, folder=tmp_path))


def test_a_file_whose_name_is_no_module_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="not a module name"):
        load(str(write(tmp_path / "my-books.py")))


def test_a_file_whose_name_means_another_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="'json' already means"):
        load(str(write(tmp_path / "json.py")))


def test_what_the_application_itself_lacks_is_its_own_error(tmp_path: Path) -> None:
    target = write(tmp_path / "zz_books.py", "import zz_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="zz_dependency"):
        load(str(target))


def test_a_declaration_error_is_left_as_it_is(tmp_path: Path) -> None:
    target = write(tmp_path / "zz_books.py", APP.format(name="x") + "@app.tool()\ndef f(a): ...\n")
    with pytest.raises(DeclarationError, match=r"zz_books\.f \(.*zz_books\.py:3\), parameter 'a'"):
        load(str(target))
