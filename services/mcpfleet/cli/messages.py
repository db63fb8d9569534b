"""`mcpfleet messages`: the texts of an application that can be translated, as a template for translators.

Declared texts have their contexts, such as `tool:search:title`. Handlers' texts are found in the author's source: those
given to `ctx.t`, the messages of questions, and the labels of their forms.
"""

from __future__ import annotations

import ast
import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from mcpfleet.app import App
from mcpfleet.app.form import form_of
from mcpfleet.app.languages import NEEDS_BABEL
from mcpfleet.app.localized import placeholders
from mcpfleet.cli.inspection import inspect
from mcpfleet.contracts.languages import texts_of, texts_of_server
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MISCONFIGURED

_TRANSLATING: Final = "t"
_ASKING: Final = frozenset({"elicit", "elicit_url", "form", "url"})
"""Methods of a Context, and functions of `mcpfleet.app.question`, whose first argument a user reads."""
_WITH_FORM: Final = frozenset({"elicit", "form"})
_LABELS: Final = ("title", "description")
_BRACES: Final = "python-brace-format"
"""gettext's flag for texts with names in braces."""


class FoundText(NamedTuple):
    """A text to translate."""

    text: str
    plural: str | None = None
    context: str | None = None
    file: str | None = None
    line: int | None = None


def run_messages(target: str, output: Path | None) -> int:
    """Write an application's template; returns the exit code: 2 if it cannot be loaded.

    Raises:
        ConfigurationError: Babel is missing, or the file cannot be written.
    """
    with redirect_stdout(sys.stderr):  # what the application prints is no part of the template
        report, app = inspect(target)
    if app is None:
        typer.secho(report.mistake.text if report.mistake is not None else target, fg="red", err=True)
        return MISCONFIGURED
    body = _written(app, list(found_texts(app, report.files)))
    if output is None:
        sys.stdout.buffer.write(body)
        sys.stdout.flush()
        return 0
    try:
        output.write_bytes(body)
    except OSError as error:
        raise ConfigurationError(f"--output: {output} cannot be written: {error.strerror}") from None
    return 0


def found_texts(app: App, files: tuple[str, ...]) -> Iterator[FoundText]:
    """Yield all texts: the application's own, declared ones, and those in the author's files."""
    manifest = app.manifest()
    options = () if manifest.languages is None else manifest.languages.translate
    for each in texts_of_server(app.title, manifest.description, app.instructions):
        if each.option is None or each.option in options:
            yield FoundText(each.text, context=each.context)
    for handler in app.handlers:
        for each in texts_of(handler.definition):
            if each.option is None or each.option in options:
                yield FoundText(each.text, None, each.context, handler.site.file, handler.site.line)
    for file in files:
        yield from _texts_in(file)


def _texts_in(file: str) -> Iterator[FoundText]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):  # it has changed since it was imported
        return
    names = next((vars(each) for each in list(sys.modules.values()) if getattr(each, "__file__", None) == file), {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _texts_of_call(node, file, names)


def _texts_of_call(node: ast.Call, file: str, names: dict[str, Any]) -> Iterator[FoundText]:
    if not isinstance(node.func, ast.Attribute) or not node.args:
        return
    text, method = _constant(node.args[0]), node.func.attr
    if text is None or (method != _TRANSLATING and method not in _ASKING):
        return
    rest = node.args[1:]
    if method == _TRANSLATING:
        yield FoundText(text, _constant(rest[0]) if rest else None, None, file, node.lineno)
        return
    yield FoundText(text, None, None, file, node.lineno)
    if method in _WITH_FORM and rest:
        wanted = names.get(rest[0].id) if isinstance(rest[0], ast.Name) else None
        yield from (FoundText(label, None, None, file, node.lineno) for label in _labels(wanted))


def _constant(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _labels(wanted: object) -> Iterator[str]:
    """Yield the labels of a form; none of what is no form."""
    if wanted is None:
        return
    with suppress(Exception):  # the handler itself would say why
        for schema in form_of(wanted).schema["properties"].values():
            yield from _labels_of(schema)


def _labels_of(schema: dict[str, Any]) -> Iterator[str]:
    for name in _LABELS:
        if isinstance(text := schema.get(name), str):
            yield text
    for name in ("oneOf", "anyOf"):
        for choice in schema.get(name) or ():
            yield from _labels_of(choice)
    if isinstance(items := schema.get("items"), dict):
        yield from _labels_of(items)


def _written(app: App, texts: list[FoundText]) -> bytes:
    """Write a template, each text once."""
    try:
        from babel.messages.catalog import Catalog  # noqa: PLC0415  # an extra
        from babel.messages.pofile import write_po  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(NEEDS_BABEL) from None
    catalog = Catalog(project=app.name, version=app.version, charset="utf-8")
    for each in texts:
        where = [(os.path.relpath(each.file), each.line)] if each.file is not None and each.line is not None else []
        message = (each.text, each.plural) if each.plural is not None else each.text
        flags = [_BRACES] if placeholders(each.text) else []
        catalog.add(message, locations=where, flags=flags, context=each.context)
    out = io.BytesIO()
    write_po(out, catalog, width=0)
    return out.getvalue()
