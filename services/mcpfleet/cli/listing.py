"""`mcpfleet list`: shows what an endpoint offers its caller, all of it or one entry in full."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from pydantic import BaseModel

from mcpfleet.cli.endpoint_client import EndpointClient
from mcpfleet.cli.known_names import KnownNames
from mcpfleet.cli.results import complain, say, show_json
from mcpfleet.cli.signatures import argument_type, printable, prompt_signature, tool_signature
from mcpfleet.cli.typed_arguments import TypedArgument, WrongArguments, near, parameters
from mcpfleet.process.errors import ConfigurationError, leaves

_MOST_PAGES: Final = 1000
"""Pages that are read of one list."""
_KINDS: Final = {
    "tools": "list_tools", "resources": "list_resources", "resourceTemplates": "list_resource_templates",
    "prompts": "list_prompts",
}  # fmt: skip
"""The lists by their names on the wire, each with the client's method."""
_TITLES: Final = {"resourceTemplates": "templates"}
_IDENTIFIERS: Final = ("uri", "uriTemplate", "name")
"""The member that identifies an entry, the first that it has."""
Entry: TypeAlias = Mapping[str, Any]
Listed: TypeAlias = dict[str, list[dict[str, Any]]]
"""For each list: its entries as they stand on the wire."""


def run_list(endpoint: EndpointClient, name: str | None, *, timeout: float, as_json: bool) -> int:
    """List an endpoint, or one entry of its lists; returns the exit code.

    Raises:
        WrongArguments: there is no such entry.
    """
    return anyio.run(_show, endpoint, name, timeout, as_json)


async def _show(endpoint: EndpointClient, name: str | None, timeout: float, as_json: bool) -> int:
    try:
        async with endpoint.open(timeout) as client:
            listed = {kind: [entry async for entry in pages(client, kind)] for kind in _KINDS}
    except Exception as error:
        if isinstance(leaves(error)[0], ConfigurationError):
            raise
        return complain(endpoint.reason(error))
    KnownNames.of_user().replace(endpoint.url, listed["tools"])
    if name is not None:
        kind, entry = find(listed, name)
        if as_json:
            show_json(entry)
        else:
            say("\n".join(in_full(kind, entry)))
    elif as_json:
        show_json(listed)
    else:
        say("\n".join(lines(listed)))
    return 0


async def pages(client: Client, kind: str) -> AsyncIterator[dict[str, Any]]:
    """Yield every entry of a list as it stands on the wire; a server without the method has none."""
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        try:
            page = wire(await getattr(client, _KINDS[kind])(cursor=cursor))
        except MCPError as error:
            if error.error.code != METHOD_NOT_FOUND:
                raise
            return
        for entry in page[kind]:
            yield entry
        cursor = page.get("nextCursor")
        if cursor is None:
            return


def wire(model: BaseModel) -> dict[str, Any]:
    """A message as it stands on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def lines(listed: Listed) -> list[str]:
    """The lines to show: each kind that has entries, each entry with the first line of its description."""
    shown = []
    for kind, entries in listed.items():
        if entries:
            shown.append(f"{_TITLES.get(kind, kind)}:")
            for entry in entries:
                shown.append(f"  {_signature(kind, entry)}")
                about = str(entry.get("description") or entry.get("title") or "").strip()
                shown += [f"      {about.splitlines()[0]}"] if about else []
    return shown or ["the endpoint offers nothing"]


def in_full(kind: str, entry: Entry) -> list[str]:
    """The lines that show all that an entry says."""
    shown = [_signature(kind, entry)]
    for said in (entry.get("title"), entry.get("description")):
        shown += ["", *str(said).strip().splitlines()] if said else []
    if kind == "prompts":
        shown += _section("arguments", _prompt_arguments(entry))
    else:
        ordered = sorted(parameters(entry.get("inputSchema")), key=lambda each: not each.is_required)
        shown += _section("arguments", [line for each in ordered for line in _about(each)])
    facts = [f"  {word}: {_value(entry[word])}" for word in ("mimeType", "size") if word in entry]
    facts += [f"  {word}: {_value(value)}" for word, value in (entry.get("annotations") or {}).items()]
    shown += _section("also", facts)
    if "outputSchema" in entry:
        schema = json.dumps(entry["outputSchema"], ensure_ascii=False, indent=2)
        shown += _section("result", [f"  {line}" for line in schema.splitlines()])
    return shown


def find(listed: Listed, name: str) -> tuple[str, Entry]:
    """Find an entry by its name, URI or template; returns its list too. Raises WrongArguments where there is none."""
    for kind, entries in listed.items():
        for entry in entries:
            if name in (_identifier(entry), entry.get("name")):
                return kind, entry
    names = [_identifier(entry) for entries in listed.values() for entry in entries]
    raise WrongArguments(f"the endpoint lists no {name!r}{near(name, names)}")


def _identifier(entry: Entry) -> str:
    return next((str(entry[word]) for word in _IDENTIFIERS if word in entry), "")


def _signature(kind: str, entry: Entry) -> str:
    match kind:
        case "tools":
            return tool_signature(str(entry.get("name")), entry.get("inputSchema"))
        case "prompts":
            return prompt_signature(str(entry.get("name")), entry.get("arguments"))
        case _:
            return printable(_identifier(entry))


def _about(parameter: TypedArgument) -> list[str]:
    words = [f"{parameter.name}: {argument_type(parameter.name, parameter.root)}"]
    if parameter.is_required:
        words.append("required")
    elif parameter.has_default:
        words.append(f"default {_value(parameter.schema['default'])}")
    described = [f"      {line}" for line in parameter.description.splitlines()]
    return [f"  {', '.join(words + parameter.rules)}", *described]


def _prompt_arguments(entry: Entry) -> list[str]:
    shown = []
    for argument in entry.get("arguments") or ():
        shown.append(f"  {argument['name']}{', required' if argument.get('required') else ''}")
        shown += [f"      {line}" for line in str(argument.get("description") or "").splitlines()]
    return shown


def _section(title: str, inside: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *inside] if inside else []


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
