"""`App.run`: the whole system, from the application's own module, which its workers import in turn."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

from mcpfleet.app.errors import LoadError, RunError
from mcpfleet.app.loading import PREFERRED, importing, place_of_file
from mcpfleet.process.names import MODULE

Transport = Literal["http", "stdio"]
_MAIN: Final = "__main__"
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COMMANDS: Final = f"mcpfleet.cli.{_MAIN}"
"""The command line, which is above this package, and is imported by name when somebody runs an App."""


def run(app: object, transport: Transport, options: dict[str, str | int | bool | None]) -> None:
    """Run the command that serves an App to its end.

    It is a process of its own for "http": this one has what the application has imported and started, and the command
    starts a fleet's processes as forks.

    Args:
        app: the App.
        transport: "http" for `mcpfleet dev`, "stdio" for `mcpfleet stdio`.
        options: the command's options by name; None leaves one out.

    Raises:
        RunError: the workers could not find the App, or this is no place to run it.
        SystemExit: the command failed.
    """
    _check_place()
    words = [{"http": "dev", "stdio": "stdio"}[transport], target_of(app)]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    code = _run_apart(words) if transport == "http" else _run_here(words)
    if code:
        raise SystemExit(code)


def _run_here(words: Sequence[str]) -> int | str | None:
    try:
        import_module(_COMMANDS).main(words)
    except SystemExit as ended:
        return ended.code
    return None


def _run_apart(words: Sequence[str]) -> int:
    """Run the command as a child in a process group of its own; it hears of signals from us alone."""
    sys.stdout.flush()
    heard: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: object) -> None:
        if child is None:
            heard.append(number)
        else:
            child.send_signal(number)

    former = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        child = subprocess.Popen([*MODULE, _COMMANDS, *words, "--with-parent"], process_group=0)  # noqa: S603
        for number in heard:
            child.send_signal(number)
        return child.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def target_of(app: object) -> str:
    """Return the target by which another process finds an App: its module, and its name there.

    The module that was started counts last: a worker imports it under another name.

    Raises:
        RunError: no module has the App at its top level, or the module is in no file.
    """
    modules = {name: module for name, module in sys.modules.items() if name != _MAIN}
    started = sys.modules[_MAIN]
    for name, module in [*modules.items(), (_MAIN, started)]:
        # A module may be any object, and looking at its attributes may run code of its own.
        names = [found for found, value in list(_members(module).items()) if value is app]
        if names:
            return f"{_place_of(name, module)}:{PREFERRED if PREFERRED in names else names[0]}"
    raise RunError(
        "app.run() found no name for the App: bind it at the top level of a module, as in `app = App(…)`;"
        " its workers find it by that name"
    )


def _members(module: object) -> dict[str, object]:
    members = getattr(module, "__dict__", None)
    return members if isinstance(members, dict) else {}


def _place_of(name: str, module: ModuleType) -> str:
    """Return a module's file if a worker would give it the same name, else the name itself."""
    spec = getattr(module, "__spec__", None)
    expected = spec.name if spec is not None else None if name == _MAIN else name
    file = getattr(module, "__file__", None)
    path = Path(file).resolve() if isinstance(file, str) else None
    if path is not None and path.suffix == ".py" and path.is_file():
        try:
            _, found = place_of_file(path)
        except LoadError as error:
            if expected is None:
                raise RunError(f"app.run() cannot be used in this file: {error}") from None
        else:
            if expected in (None, found):
                return str(path)
    if expected is None:
        raise RunError(
            "app.run() needs a module that its workers can import: save the App in a file that ends in .py,"
            " and run that file; in a notebook use mcpfleet.testing.LocalFleet"
        )
    return expected


def _check_place() -> None:
    if importing.get():
        raise RunError(
            "app.run() was called while a worker imported the module: put it below"
            ' `if __name__ == "__main__":`, so that it runs only where the program starts'
        )
    if threading.current_thread() is not threading.main_thread():
        raise RunError("app.run() handles signals, so it must be called in the main thread")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RunError(
        "app.run() has an event loop of its own: call it outside of async functions;"
        " in a notebook or a test use mcpfleet.testing.LocalFleet"
    )
