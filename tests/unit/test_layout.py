"""Where things live, and what every file of ours must have: the rules that a reader of the tree relies on."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.kit.tree import ROOT, committed, python_files

SOURCE_ROOTS = (ROOT / "services" / "mcpfleet", ROOT / "shared" / "mcpfleet")

DIRECTORIES = {"services", "shared", "deploy", "observability", "tests", "examples", "docs"}
FILES = {"pyproject.toml", "README.md", "Makefile", "LICENSE", "CHANGELOG.md", "mkdocs.yml"}

LONGEST = 400
SAYS_WHY = re.compile(r"^# Longer than \d+ lines: \S+", re.MULTILINE)
"""A file that has a reason to be long says it in a comment of this form."""
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}

MACHINE_PATH = re.compile(r"(?<![\w./:~-])/(?:work|root|home|Users|mnt|private)/\w")
INDEX = re.compile(r"--(?:extra-)?index[-]url|PIP_INDEX[_]URL|pythonhosted[.]org|pypi[.]org|registry[.]npmjs")
"""Where packages come from is the business of whoever installs."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def packages() -> list[Path]:
    """Every folder below the namespace that has modules."""
    return sorted({path.parent for path in python_files("services", "shared")})


@cache
def modules() -> dict[str, Path]:
    """Our modules by their dotted names."""
    paths = python_files("services", "shared")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__"): path for path in paths
    }


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports when it is imported, and those that it imports for types alone."""
    body = list(ast.parse(path.read_text()).body)
    found: set[str] = set()
    while body:
        node = body.pop()
        if isinstance(node, ast.If):
            body += [*node.body, *node.orelse]
        elif isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{each.name}" for each in node.names)
            if not any(f"{node.module}.{each.name}" in modules() for each in node.names):
                found.add(node.module)
    return found


def init_of(package: Path) -> ast.Module:
    """A package's `__init__.py`, read; nothing where there is none."""
    init = package / "__init__.py"
    return ast.parse(init.read_text() if init.exists() else "")


def test_the_top_level_holds_what_everybody_expects_and_nothing_else() -> None:
    strangers = set()
    for name in committed():
        top, _, rest = name.partition("/")
        known = DIRECTORIES if rest else FILES
        if top not in known and not top.startswith(".") and not top.endswith(".lock"):
            strangers.add(top)
    assert strangers == set()


@pytest.mark.parametrize("folder", [*(root.parent for root in SOURCE_ROOTS), *SOURCE_ROOTS], ids=named)
def test_the_namespace_has_no_init(folder: Path) -> None:
    """Two source roots share `mcpfleet`; an `__init__.py` in one would hide the other."""
    assert not (folder / "__init__.py").exists()
    assert [path.name for path in folder.glob("*.py")] == []


def test_a_package_stands_in_one_of_the_source_roots_only() -> None:
    services, shared = ({path.name for path in root.iterdir() if any(path.glob("*.py"))} for root in SOURCE_ROOTS)
    assert services & shared == set()


def test_every_package_has_an_init_that_says_what_it_is() -> None:
    assert [named(package) for package in packages() if not ast.get_docstring(init_of(package))] == []


def test_inits_import_nothing_but_the_face_of_the_application() -> None:
    """A process's imports are most of its start; `mcpfleet.app` alone re-exports."""
    importing = {
        package.name
        for package in packages()
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in init_of(package).body)
    }
    assert importing <= {"app"}


def test_every_package_under_the_namespace_is_typed() -> None:
    """A marker covers the packages inside its own; a namespace has no place for one."""
    outermost = [package for package in packages() if package.parent in SOURCE_ROOTS]
    assert [named(package) for package in outermost if not (package / "py.typed").exists()] == []


def module_name(path: Path) -> str:
    """The dotted name by which a module of ours is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in python_files("services", "shared"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module_name(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_no_module_imports_one_that_imports_it() -> None:
    """Not even for types: two modules that need each other are one, or need a third."""
    left = {name: imports_of(path) for name, path in modules().items()}
    while leaves := {name for name, imports in left.items() if not imports & left.keys()}:
        left = {name: imports for name, imports in left.items() if name not in leaves}
    assert sorted(left) == []


def test_every_module_begins_with_a_sentence() -> None:
    silent = []
    for path in python_files("services", "shared", "tests", "examples"):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        if not first.endswith((".", "?", "!", ":", "…")):
            silent.append(named(path))
    assert silent == []


def test_a_long_file_says_why_it_is_long() -> None:
    long = []
    for path in python_files("services", "shared", "tests", "examples"):
        text = path.read_text()
        if text.count("\n") > LONGEST and not SAYS_WHY.search(text):
            long.append(named(path))
    assert long == []


def test_nothing_is_named_for_what_it_is_not() -> None:
    """A folder is a layer, a file is a noun: these words are neither."""
    found = [
        name
        for name in committed()
        if name.endswith(".py") and MEANINGLESS & {part.removesuffix(".py") for part in name.split("/")}
    ]
    assert found == []


def test_no_committed_file_knows_a_machine_or_an_index() -> None:
    found = []
    for name in committed():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {hit[0]}" for rule in (MACHINE_PATH, INDEX) for hit in rule.finditer(text)]
    assert found == []


@pytest.mark.parametrize("lock", sorted(ROOT.glob("*.lock")), ids=named)
def test_a_lock_file_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text
