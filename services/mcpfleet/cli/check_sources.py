"""`mcpfleet check` for MCP servers that exist: it starts and lists them, and shows what clients would see of them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog
import typer

from mcpfleet.cli.check import SHOWN_KINDS
from mcpfleet.cli.dev_sources import command_of, on_one_machine
from mcpfleet.cli.signatures import printable, prompt_signature, tool_signature
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import FAILED
from mcpfleet.sources.overlay import Offer, Overlaid, together
from mcpfleet.sources.source import Source
from mcpfleet.sources.target import SourceTarget
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.source_app import check_built
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor

_GRACE: Final = 5.0
"""Seconds beyond the limit of a start, for the reaper and the handshake."""


@dataclass
class Checked:
    """The outcome of a source's check."""

    source: Source
    laid: Overlaid | None = None
    """Its offers; None if it was not listed."""
    server: str = ""
    """Its own name and version."""
    why: str = ""
    """Why it was not listed."""


def check_sources(target: SourceTarget, *, as_json: bool, within: float) -> int:
    """Start and list the sources, and print what clients would see; returns the exit code: 1 if one is not served.

    Args:
        target: names them.
        as_json: print a JSON object.
        within: seconds in which each must be ready.

    Raises:
        ConfigurationError: their configuration has a mistake.
    """
    found = target.read(os.environ)
    checked = anyio.run(_list_all, [on_one_machine(source) for source in found.sources], within)
    both = together(each.laid for each in checked if each.laid is not None)
    notes = [*map(str, found.notes), *both.notes]
    if as_json:
        print(json.dumps(_document(target, checked, both, notes), ensure_ascii=False))  # noqa: T201
    else:
        for line in lines(checked, both):
            typer.echo(line)
        for note in notes:
            typer.secho(f"warning: {printable(note)}", fg="yellow", err=True)
        for each in checked:
            if each.laid is None:
                typer.secho(f"{each.source.name} is not served: {printable(each.why)}", fg="red", err=True)
    return FAILED if any(each.laid is None for each in checked) else 0


async def _list_all(sources: list[Source], within: float) -> list[Checked]:
    """Start and list sources side by side, and end them."""
    checked = [Checked(source.model_copy(update={"start_within": within})) for source in sources]
    reaping = Reaping()
    try:
        async with anyio.create_task_group() as tasks:
            for each in checked:
                tasks.start_soon(_list, each, reaping, within)
    finally:
        with anyio.CancelScope(shield=True):
            await reaping.close()
    return checked


async def _list(checked: Checked, reaping: Reaping, within: float) -> None:
    try:
        check_built(checked.source)
    except ConfigurationError as error:
        checked.why = str(error)
        return

    def hear(is_there: bool, why: str) -> None:
        checked.why = "" if is_there else why

    silent = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    supervisor = SourceSupervisor(
        checked.source, reaping, log=silent, tell_health=hear, on_change=lambda: None, on_update=lambda _uri: None
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        with anyio.move_on_after(within + _GRACE):
            await supervisor.has_tried.wait()
        tasks.cancel_scope.cancel()
    if supervisor.listing is None:
        checked.why = checked.why or f"it was not listed within {within:g} s"
        return
    checked.laid = supervisor.listing.overlaid
    checked.server = _title(supervisor.listing.facts.server)


def _title(server: Mapping[str, Any]) -> str:
    """Return a server's own name and version, as far as it tells them."""
    return " ".join(each for each in (server.get("name"), server.get("version")) if isinstance(each, str))


def lines(checked: list[Checked], both: Overlaid) -> Iterator[str]:
    """Yield the lines to show: each source, what clients would see of it, and what is left out."""
    for each in checked:
        if each.laid is None:
            continue
        place = f" ({each.source.place})" if each.source.place else ""
        yield printable(f"{command_of(each.source)}{place}")
        if each.server:
            yield printable(f"  {each.server}")
        own = [offer for offer in both.offers if offer.source == each.source.name]
        for kind, several in SHOWN_KINDS.items():
            offers = [offer for offer in own if offer.definition.kind == kind]
            if offers:
                yield f"  {several}:"
            for offer in offers:
                yield f"    {_signature(offer)}{_renamed(each.source, offer)}"
        left_out = [one for one in both.left_out if one.source == each.source.name]
        if left_out:
            yield "  left out:"
        for one in left_out:
            yield printable(f"    the {one.kind} {one.name}: {one.why}")
        if not own:
            yield "  it offers nothing"


def _signature(offer: Offer) -> str:
    wire, name = offer.definition.wire, offer.definition.name
    match offer.definition.kind:
        case "tool":
            return tool_signature(name, wire.get("inputSchema"))
        case "prompt":
            return prompt_signature(name, wire.get("arguments"))
        case _:
            return printable(name)


def _renamed(source: Source, offer: Offer) -> str:
    """Say how the source calls it, where that is more than a prefix."""
    is_plain = not offer.is_renamed or offer.definition.name == f"{source.prefix}{offer.declared}"
    return "" if is_plain else printable(f"  (there: {offer.declared})")


def _document(target: SourceTarget, checked: list[Checked], both: Overlaid, notes: list[str]) -> dict[str, Any]:
    return {
        "target": target.text,
        "ok": all(each.laid is not None for each in checked),
        "sources": [_source_document(each, both) for each in checked],
        "notes": notes,
    }


def _source_document(checked: Checked, both: Overlaid) -> dict[str, Any]:
    name = checked.source.name
    document: dict[str, Any] = {
        "name": name, "place": checked.source.place or None, "runs": command_of(checked.source),
        "ok": checked.laid is not None, "why": checked.why or None, "server": checked.server or None,
    }  # fmt: skip
    for kind, several in SHOWN_KINDS.items():
        document[several] = [
            {"declared": offer.declared, **offer.definition.wire}
            for offer in both.offers
            if offer.source == name and offer.definition.kind == kind
        ]
    document["left_out"] = [
        {"kind": each.kind, "name": each.name, "why": each.why, "wanted": each.is_wanted}
        for each in both.left_out
        if each.source == name
    ]
    return document
