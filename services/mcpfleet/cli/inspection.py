"""Imports an application and says what it declares, or why it cannot: `python -m mcpfleet.cli.inspection TARGET S`.

The author's code runs here, so this is a process of its own: it may print, hang or end as it likes. The report goes to
standard output, and all that the application prints goes to standard error. An import that takes longer than `S`
seconds is a mistake.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, NoReturn

from mcpfleet.app import App, DeclarationWarning, Handler, load
from mcpfleet.app.effects import effects_before_questions
from mcpfleet.app.load_problem import load_problem
from mcpfleet.cli.import_report import Declared, Finding, ImportReport
from mcpfleet.process.tracebacks import SourceLine, is_own, own_frames, place_of

_CLOCK_OF_FILES: Final = 0.02
"""Seconds by which the times of files may be behind the clock."""
BEGINS: Final = b" "
"""Written before the import begins; JSON allows it before a report."""


class _TooLong(BaseException):
    """Raised in the midst of an import that has no time left; an application's `except Exception` lets it through."""


def inspect(target: str, within: float | None = None) -> tuple[ImportReport, App | None]:
    """Import an application; call it in the main thread of a process that is its own.

    Args:
        target: the application.
        within: seconds that the import may take; None has no limit.

    Returns:
        The report, and the application if it was loaded.
    """
    began = time.time() - _CLOCK_OF_FILES
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeclarationWarning)
        app, mistake = _loaded(target, within)
    told = [each for each in caught if issubclass(each.category, DeclarationWarning)]
    for each in caught:
        if each not in told:  # they are somebody else's: shown as Python would
            warnings.showwarning(each.message, each.category, each.filename, each.lineno)
    files = _own_files(mistake)
    if app is None:
        return ImportReport(target=target, mistake=mistake, began=began, files=files), None
    warned = [_warned(str(each.message), SourceLine(each.filename, each.lineno)) for each in told]
    warned += [*_undescribed(app), *_repeated(app)]
    declared = tuple(map(_declared, app.handlers))
    report = ImportReport(
        target=target,
        name=app.name,
        version=app.version,
        declared=declared,
        warnings=tuple(warned),
        began=began,
        files=files,
    )
    return report, app


def _loaded(target: str, within: float | None) -> tuple[App | None, Finding | None]:
    try:
        with nullcontext() if within is None else _limited(within):
            app = load(target)
            app.check_documents()
            app.lifespans()  # a handler may take one that nobody declares
            return app, None
    except KeyboardInterrupt:
        raise
    except _TooLong as error:
        place = place_of(error)
        why = f"{place or target}: the import is not finished after {within:g} s"
        file, line = place or (None, None)
        return None, Finding(message=why, file=file, line=line, traceback=own_frames(error))
    except BaseException as error:  # also what would end the process
        found = load_problem(target, error)
        return None, Finding(message=found.message, file=found.file, line=found.line, traceback=found.traceback)


@contextmanager
def _limited(within: float) -> Iterator[None]:
    def expire(*_: object) -> NoReturn:
        raise _TooLong

    former = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, within)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _own_files(mistake: Finding | None) -> tuple[str, ...]:
    """The author's files among the imported modules, and the one that failed."""
    files = {
        file for module in list(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)
    }
    if mistake is not None and mistake.file is not None:
        files.add(mistake.file)
    return tuple(sorted(file for file in files if is_own(file)))


def _declared(handler: Handler) -> Declared:
    definition, site = handler.definition, handler.site
    return Declared(
        kind=definition.kind,
        name=definition.name,
        wire=definition.wire,
        scopes=definition.scopes,
        asks=bool(handler.questions),
        task=definition.task,
        file=site.file,
        line=site.line,
    )


def _undescribed(app: App) -> list[Finding]:
    return [
        _warned(
            f"the tool {name!r} has no description: models choose by it", SourceLine(tool.site.file, tool.site.line)
        )
        for name, tool in app.tools.items()
        if not tool.definition.wire.get("description") and tool.site.file is not None
    ]


def _repeated(app: App) -> Iterator[Finding]:
    """Warn of likely effects before a question: the handler runs again from its top once it is answered."""
    for handler in app.handlers:
        for effect in effects_before_questions(handler) if handler.questions else ():
            why = f"`{effect.text}` happens again after each answer to a question of {handler.definition.name!r}"
            yield _warned(f"{why}: put it in ctx.step, or behind the question", SourceLine(effect.file, effect.line))


def _warned(message: str, place: SourceLine) -> Finding:
    return Finding(message=f"{place}: {message}", file=place.file, line=place.line)


def main() -> None:
    """Import the target, report, and end without waiting for anything that the application has started."""
    target, within = sys.argv[1], float(sys.argv[2])
    sys.argv[1:] = []  # the application's own reading of arguments finds none
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, BEGINS)
    report, _ = inspect(target, within)
    with os.fdopen(answer, "wb") as out:
        out.write(report.model_dump_json().encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
