"""Arguments that a client repeats in an `Mcp-Param-…` header, so that proxies may route by them: the rules of M7.

A parameter asks for it with `Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]`.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final

from mcpfleet.app.errors import DeclarationWarning, Mistake
from mcpfleet.app.subschemas import Place, walk

KEYWORD: Final = "x-mcp-header"

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every client reads exactly."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET: Final = re.compile(r"(?i)passw|secret|token|api.?key|credential|authoriz|private.?key|cookie|session")


def check_custom_headers(schema: dict[str, Any]) -> None:
    """Check every custom header of an input schema: a client leaves out a tool that has a bad one.

    Warns of names that look secret: every proxy on the way can read a header.

    Raises:
        Mistake: a header's name is no token or is taken, or its parameter is of a type or in a place that has no
            header.
    """
    taken: set[str] = set()
    for place in walk(schema):
        if KEYWORD not in place.schema:
            continue
        header = place.schema[KEYWORD]
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise Mistake(f"{KEYWORD} {header!r} is not the name of a header", place.name)
        if header.lower() in taken:
            raise Mistake(f"{KEYWORD} {header!r} is taken by another parameter; case makes no difference", place.name)
        taken.add(header.lower())
        _check_place(place)
        if _SECRET.search(header) or _SECRET.search(place.name):
            warnings.warn(
                f"{KEYWORD} {header!r} looks like a secret, and every proxy reads it", DeclarationWarning, stacklevel=2
            )


def _check_place(place: Place) -> None:
    if not place.path or not place.by_properties:
        raise Mistake(f"{KEYWORD} must stand on a property that is reached by properties alone", place.name)
    kind = place.schema.get("type")
    if kind not in ("string", "integer", "boolean"):
        raise Mistake(f"{KEYWORD} goes with type string, integer or boolean, not {kind!r}", place.name)
    if kind == "integer" and any(abs(number) > SAFE_INTEGER for number in _stated_integers(place.schema)):
        raise Mistake(f"{KEYWORD} goes with integers from {-SAFE_INTEGER} to {SAFE_INTEGER}", place.name)


def _stated_integers(schema: dict[str, Any]) -> list[int]:
    stated = [schema.get(keyword) for keyword in ("minimum", "maximum", "const", "default")]
    return [value for value in [*stated, *schema.get("enum", [])] if isinstance(value, int)]
