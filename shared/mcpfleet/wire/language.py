"""The language that a client prefers: the grammar of `Accept-Language`, and the look-up by it (X31).

RFC 9110, 12.5.4 has the grammar and the weights. RFC 4647, 3.4 has the look-up: a range loses its last parts until a
language on offer has its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mcpfleet.wire.errors import header_mismatch
from mcpfleet.wire.headers import Headers

ACCEPT_LANGUAGE_META_KEY: Final = "io.modelcontextprotocol/acceptLanguage"
"""SEP-2792's key; `mcp_types` has no constant for it."""
CONTENT_LANGUAGE_META_KEY: Final = "io.modelcontextprotocol/contentLanguage"
ACCEPT_LANGUAGE: Final = b"accept-language"
CONTENT_LANGUAGE: Final = b"content-language"

LONGEST_PREFERENCE: Final = 512
"""Bytes of a preference; a longer one is none, and nothing keeps it."""
MOST_RANGES: Final = 32
"""Ranges of a preference; with more it is none."""
LONGEST_TAG: Final = 35
"""Characters of a language's tag, which RFC 5646, 4.4.1 finds enough."""
TAG_PATTERN: Final = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"
_ANY: Final = "*"
_WHOLE: Final = 1000
"""The weight of a range that states none, in thousandths."""
_RANGE: Final = re.compile(
    r"([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)(?:[ \t]*;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?"
)
_READ: Final = 256
"""Preferences whose reading is remembered."""


class LanguageRange(NamedTuple):
    """A part of a preference."""

    name: str
    """In small letters; `*` for any language."""
    weight: int
    """In thousandths; 0 excludes."""


def tag_of(name: str) -> str:
    """Return a language's tag in its usual spelling, of a name such as `pt_br` (RFC 5646, 2.1.1)."""
    first, *rest = name.replace("_", "-").lower().split("-")
    sizes = {2: str.upper, 4: str.title}
    return "-".join([first, *(sizes.get(len(each) if each.isalpha() else 0, str)(each) for each in rest)])


def read_preference(value: str) -> tuple[LanguageRange, ...]:
    """Read the value of `Accept-Language`: its ranges, the heaviest first; none of a malformed or too long value."""
    return _read(value) if len(value) <= LONGEST_PREFERENCE else ()


@lru_cache(maxsize=_READ)
def _read(value: str) -> tuple[LanguageRange, ...]:
    parts = [part for each in value.split(",") if (part := each.strip(" \t"))]
    found = [_RANGE.fullmatch(part) for part in parts]
    if len(parts) > MOST_RANGES or None in found:
        return ()
    ranges = [LanguageRange(each[1].lower(), _weight(each[2])) for each in found if each is not None]
    return tuple(sorted(ranges, key=lambda each: -each.weight))


def _weight(stated: str | None) -> int:
    return _WHOLE if stated is None else round(float(stated) * _WHOLE)


def look_up(preference: str, offered: Sequence[str]) -> str | None:
    """Return the language that fits a preference best; None where none does.

    Args:
        preference: as `Accept-Language` has it.
        offered: the tags on offer; the first one answers `*`.
    """
    ranges = read_preference(preference)
    known = {tag.lower(): tag for tag in offered if not _is_excluded(tag.lower(), ranges)}
    for name, weight in ranges:
        if not weight:
            break
        if name == _ANY:
            others = [each.name for each in ranges if each.name != _ANY]
            found = next((tag for low, tag in known.items() if not any(_covers(each, low) for each in others)), None)
        else:
            found = next((known[each] for each in _shorter(name) if each in known), None)
        if found is not None:
            return found
    return None


def _shorter(name: str) -> Sequence[str]:
    """Return a range and what is left of it, part by part; a single letter goes with the part behind it."""
    parts, found = name.split("-"), []
    while parts:
        found.append("-".join(parts))
        parts.pop()
        if parts and len(parts[-1]) == 1:
            parts.pop()
    return found


def _covers(name: str, tag: str) -> bool:
    return tag == name or tag.startswith(f"{name}-")


def _is_excluded(tag: str, ranges: Sequence[LanguageRange]) -> bool:
    """Return whether the most specific range that names a language has the weight 0."""
    covering = [each for each in ranges if each.name != _ANY and _covers(each.name, tag)]
    return bool(covering) and not max(covering, key=lambda each: (len(each.name), each.weight)).weight


def stated_preference(headers: Headers) -> str | None:
    """Return the preference of the header alone; several lines of it are one list (RFC 9110, 5.3)."""
    values = headers.all(ACCEPT_LANGUAGE)
    return b", ".join(values).decode("latin-1") if values else None


def check_mirrored(headers: Headers, stated: object) -> None:
    """Compare the header with the key of `_meta`; a proxy may have taken the header away (X30).

    Raises:
        Rejection: -32020.
    """
    header = headers.single(ACCEPT_LANGUAGE)
    if header is not None and header != stated:
        raise header_mismatch("Accept-Language differs from the body")


def content_language(tag: str) -> bytes:
    """Compose the member of `_meta` that names a language, without braces."""
    return b'"%b":"%b"' % (CONTENT_LANGUAGE_META_KEY.encode(), tag.encode())
