"""Finds the App that a target on the command line names."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from mcpfleet.app.app import App
from mcpfleet.app.errors import LoadError
from mcpfleet.process.named_object import search_folder

PREFERRED = "app"
"""The attribute that counts if a module has several Apps and the target names none."""
importing: ContextVar[bool] = ContextVar("importing", default=False)
"""Whether a target is being imported, so that a module which would run itself is told."""


def load(target: str) -> App:
    """Import a target and find its App.

    A file is imported under the name that it has from its own folder, or from above its package. That folder becomes
    importable, as if Python had been started there: every worker then gives its types the same names.

    Args:
        target: `path/to/app.py`, `module`, or either with `:attribute`.

    Raises:
        LoadError: there is no such file, module or attribute, or no App, or several.
        Exception: any error of the module while it is imported, such as DeclarationError.
    """
    place, _, attribute = target.partition(":")
    before = importing.set(True)
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    finally:
        importing.reset(before)
    return _named(module, attribute, target) if attribute else _only(module, target)


def place_of_file(path: Path) -> tuple[Path, str]:
    """Return the folder that must be importable for a file, and the name that the file then has.

    Raises:
        LoadError: that is no name of a module.
    """
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(names).removesuffix(".__init__")
    if not all(part.isidentifier() for part in names):
        raise LoadError(f"{path} cannot be imported: {name!r} is not a module name")
    return folder, name


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise LoadError(f"no file {path}")
    folder, name = place_of_file(path)
    search_folder()
    _make_importable(folder)
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise LoadError(f"{path} cannot be imported: the name {name!r} already means {found or 'a built-in module'}")
    return module


def _import_module(name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise LoadError(f"{name!r} is neither a file that ends in .py nor the name of a module")
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports in turn may be missing: that is the application's own error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise LoadError(
            f"no module {error.name!r} for the target {name!r} (looked in {Path.cwd()} and sys.path)"
        ) from None


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _named(module: ModuleType, attribute: str, target: str) -> App:
    value: Any = module
    for step in attribute.split("."):
        try:
            value = getattr(value, step)
        except AttributeError:
            raise LoadError(f"{target}: {module.__name__} has no attribute {attribute!r}{_apps_of(module)}") from None
    if not isinstance(value, App):
        raise LoadError(f"{target}: {attribute!r} is a {type(value).__name__}, not an App")
    return value


def _apps_in(module: ModuleType) -> dict[str, App]:
    """Return the Apps at the top level of a module, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _apps_of(module: ModuleType) -> str:
    """Name the Apps of a module, for the end of a sentence about a missing one."""
    names = [repr(name) for name in _apps_in(module)]
    if not names:
        return ""
    return f"; its App is {names[0]}" if len(names) == 1 else f"; its Apps are {', '.join(names)}"


def _only(module: ModuleType, target: str) -> App:
    apps = _apps_in(module)
    if PREFERRED in apps:
        return apps[PREFERRED]
    included = {id(part) for app in apps.values() for part in app.declared.parts()[1:]}
    distinct = {id(value): value for value in apps.values() if id(value.declared) not in included}
    if not distinct:
        raise LoadError(f"{target}: {module.__name__} has no App at its top level")
    if len(distinct) > 1:
        found = "; ".join(f"{name}{_line_of(name, module)}" for name in apps)
        raise LoadError(f"{target}: {module.__name__} has several Apps ({found}): add one, as `:{next(iter(apps))}`")
    return next(iter(distinct.values()))


def _line_of(name: str, module: ModuleType) -> str:
    """Say in which line a module assigns a name; empty where it does not, as for a name that it imports."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # it has no source
        return ""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return f", line {statement.lineno}"
    return ""
