"""Prints what a server answered: results of tools, contents of resources, messages of prompts, and failures.

Everything here takes the members that stand on the wire. Texts are plain in a pipe; a terminal gets colours, and no
character that could steer it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import DRAINED, FAILED

_KEPT: Final = "\n\t"
"""Characters that steer a terminal and may: they only move on."""


@dataclass(frozen=True)
class Output:
    """How a command prints its answer."""

    as_json: bool = False
    """As JSON, whole."""
    file: Path | None = None
    """Where binary parts are saved, or where there are none, everything."""

    def __post_init__(self) -> None:
        """Refuse a file that cannot be written before anything is called; raises ConfigurationError."""
        if self.file is not None and (self.file.is_dir() or not self.file.absolute().parent.is_dir()):
            raise ConfigurationError(f"--out {self.file}: there is no such folder, or this is a folder itself")


@dataclass(frozen=True)
class _Binary:
    """A part of an answer that is no text."""

    what: str
    data: bytes


def show_result(result: Mapping[str, Any], output: Output) -> int:
    """Print a tool's result: its structured content, and the blocks that add to it; returns the exit code.

    An error is printed on standard error.
    """
    is_error = bool(result.get("isError"))
    if output.as_json:
        _emit([json.dumps(result, ensure_ascii=False)], output)
    elif is_error:
        _emit(_parts_of_blocks(result.get("content")) or [_pretty(result.get("structuredContent"))], output, is_error)
    else:
        parts: list[str | _Binary] = []
        if result.get("structuredContent") is not None:
            parts.append(_pretty(result["structuredContent"]))
        _emit(parts + _parts_of_blocks(_beside(result)), output)
    return FAILED if is_error else DRAINED


def show_contents(result: Mapping[str, Any], output: Output) -> int:
    """Print a resource's contents; returns the exit code."""
    if output.as_json:
        _emit([json.dumps(result, ensure_ascii=False)], output)
    else:
        _emit([_content(each) for each in _mappings(result.get("contents"))], output)
    return DRAINED


def show_messages(result: Mapping[str, Any], output: Output) -> int:
    """Print a prompt's messages, each below the name of its role; returns the exit code."""
    if output.as_json:
        _emit([json.dumps(result, ensure_ascii=False)], output)
        return DRAINED
    parts: list[str | _Binary] = []
    for message in _mappings(result.get("messages")):
        content = message.get("content")
        parts += [f"{message.get('role')}:", *_parts_of_blocks(content if isinstance(content, list) else [content])]
    _emit(parts, output)
    return DRAINED


def show_json(value: Any) -> None:
    """Print a value as JSON: in colours on a terminal, and indented everywhere."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  # a pipe needs none of it
        from rich.highlighter import JSONHighlighter  # noqa: PLC0415

        Console().print(JSONHighlighter()(_escaped(_pretty(value))), soft_wrap=True)
    else:
        typer.echo(_pretty(value))


def say(text: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print a text; a terminal gets no character that could steer it."""
    stream = sys.stderr if err else sys.stdout
    shown = harmless(text) if stream.isatty() else text
    typer.echo(shown if colour is None or os.environ.get("NO_COLOR") else typer.style(shown, fg=colour), err=err)


def complain(what: object) -> int:
    """Print on standard error why there is no result; returns the exit code."""
    say(str(what), err=True, colour="red")
    return FAILED


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as columns that are as wide as their widest cell; the last column may be any width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def harmless(text: str) -> str:
    """A text with escapes in place of the characters that could steer a terminal; lines stay lines."""
    return "".join(
        each if each.isprintable() or each in _KEPT else each.encode("unicode_escape").decode()
        for each in text.replace("\r\n", "\n")
    )


def _escaped(text: str) -> str:
    """JSON with its own escapes in place of the characters that could steer a terminal; it lets some stand."""
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _beside(result: Mapping[str, Any]) -> list[Any]:
    """The blocks that do not only repeat the structured content."""
    structured = result.get("structuredContent")
    blocks = _mappings(result.get("content"))
    return [block for block in blocks if structured is None or not _repeats(block, structured)]


def _repeats(block: Mapping[str, Any], structured: object) -> bool:
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return structured in (value, text, {"result": value}, {"result": text})


def _parts_of_blocks(blocks: object) -> list[str | _Binary]:
    return [_block(block) for block in _mappings(blocks)]


def _block(block: Mapping[str, Any]) -> str | _Binary:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _binary(f"{kind} of type {block.get('mimeType')}", data)
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[resource {uri}{_about_link(block)}]"
        case {"type": "resource", "resource": dict(resource)}:
            return _content(resource)
        case _:
            return _pretty(block)


def _about_link(link: Mapping[str, Any]) -> str:
    size = link.get("size")
    known = [link.get("title") or link.get("name"), link.get("mimeType"), size and f"{size} bytes"]
    said = ", ".join(str(each) for each in known if each)
    return f": {said}" if said else ""


def _content(content: Mapping[str, Any]) -> str | _Binary:
    match content:
        case {"text": str(text)}:
            return text
        case {"blob": str(blob)}:
            return _binary(f"resource {content.get('uri')} of type {content.get('mimeType') or 'unknown'}", blob)
        case _:
            return _pretty(content)


def _binary(what: str, data: str) -> str | _Binary:
    try:
        return _Binary(what, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{what}, which is not valid Base64]"


def _emit(parts: Sequence[str | _Binary], output: Output, is_error: bool = False) -> None:
    """Print the parts of an answer, and save what is to be saved."""
    if output.file is not None and not any(isinstance(part, _Binary) for part in parts):
        text = "\n".join(part for part in parts if isinstance(part, str)) + "\n"
        _save(output.file, text.encode())
        say(f"[{len(text)} characters, saved as {output.file}]", err=True)
        return
    files = _names(output.file)
    for part in parts:
        if isinstance(part, str):
            say(part, err=is_error, colour="red" if is_error else None)
            continue
        saved = ""
        if output.file is not None:
            file = next(files)
            _save(file, part.data)
            saved = f", saved as {file}"
        say(f"[{part.what}, {len(part.data)} bytes{saved}]", err=is_error)


def _names(file: Path | None) -> Iterator[Path]:
    """The files of several binary parts: the named one, and then numbered ones beside it."""
    if file is None:
        return
    yield file
    number = 2
    while True:
        yield file.with_stem(f"{file.stem}-{number}")
        number += 1


def _save(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"--out {file}: {error.strerror}") from None


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _mappings(values: object) -> list[Mapping[str, Any]]:
    """The entries of a list that are objects, as all are that a server may send here."""
    return [each for each in values if isinstance(each, Mapping)] if isinstance(values, Iterable) else []
