"""URI templates (RFC 6570) that can be matched: `{name}` for one part of a URI, `{+name}` for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from urllib.parse import quote, unquote

MOST_VARIABLES: Final = 16
"""Variables of one template."""

SUPPORTED: Final = "{name} for one part, and {+name} at the end for all that is left of the path"
"""The part of RFC 6570 that can be matched, for errors."""

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"(\+?)([A-Za-z_][A-Za-z0-9_]*)")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadTemplate(ValueError):
    """Raised when a text is no matchable template; the sentence gives the reason."""


@dataclass(frozen=True)
class UriTemplate:
    """A template that matches URIs and reads their variables.

    A variable's value has at least one character and ends at `/`, `?` or `#`, in a query at `&` or `#`. If another
    variable follows in the same part, it also ends at the literal between them. So a match is found without
    backtracking.
    """

    text: str
    variables: tuple[str, ...]
    rank: tuple[bool, int, int, str]
    """The order in which several matching templates are tried: the smallest is the most specific."""
    _pattern: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a template.

        Raises:
            BadTemplate: it is not well formed, or has no unique match.
        """
        literals, expressions = _split(text)
        variables: list[str] = []
        pattern, takes_rest = re.escape(literals[0]), False
        for index, expression in enumerate(expressions):
            found = _VARIABLE.fullmatch(expression)
            if found is None:
                raise BadTemplate(f"the expression {{{expression}}} is not supported: write {SUPPORTED}")
            literal, is_last = literals[index + 1], index == len(expressions) - 1
            name, takes_rest = found[2], bool(found[1])
            if name in variables:
                raise BadTemplate(f"the variable {name!r} stands there twice")
            if takes_rest and not (is_last and not literal):
                raise BadTemplate(f"{{+{name}}} must be the template's end: write {SUPPORTED}")
            if not literal and not is_last:
                raise BadTemplate(f"a literal must stand between {name!r} and the next variable")
            variables.append(name)
            in_query = "?" in "".join(literals[: index + 1])
            pattern += f"([^{_ends(literal, takes_rest=takes_rest, in_query=in_query, is_last=is_last)}]+)"
            pattern += re.escape(literal)
        if len(variables) > MOST_VARIABLES:
            raise BadTemplate(f"a template has at most {MOST_VARIABLES} variables")
        rank = (takes_rest, -sum(map(len, literals)), len(variables), text)
        return cls(text, tuple(variables), rank, re.compile(pattern))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables' values in a URI, percent-decoded; None if the template does not match it.

        A URI with bad percent-encoding, other bytes than UTF-8, or NUL matches no template.
        """
        found = self._pattern.fullmatch(uri)
        if found is None or _BROKEN_ESCAPE.search(uri):
            return None
        try:
            values = [unquote(value, errors="strict") for value in found.groups()]
        except UnicodeDecodeError:
            return None
        return None if any("\0" in value for value in values) else dict(zip(self.variables, values, strict=True))

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the URI of these values, percent-encoded; each variable needs one."""
        parts = _EXPRESSION.split(self.text)
        for place in range(1, len(parts), 2):
            name = parts[place]
            parts[place] = quote(values[name.removeprefix("+")], safe="/" if name.startswith("+") else "")
        return "".join(parts)

    @cached_property
    def scheme(self) -> str:
        """The scheme of all matching URIs, in small letters; empty if a variable stands in its place."""
        scheme, colon, _ = self.text.partition(":")
        return scheme.lower() if colon and "{" not in scheme else ""


def _split(text: str) -> tuple[list[str], list[str]]:
    """Split a template into its expressions and the text around them."""
    parts = _EXPRESSION.split(text)
    literals, expressions = parts[::2], parts[1::2]
    for literal in literals:
        if not _LITERAL.fullmatch(literal):
            raise BadTemplate(f"{literal!r} holds characters that no URI may have: percent-encode them")
    return literals, expressions


def _ends(literal: str, *, takes_rest: bool, in_query: bool, is_last: bool) -> str:
    """Return the characters that end a variable's value, as a class of characters."""
    ends = "?#" if takes_rest else "&#" if in_query else "/?#"
    is_shared = bool(literal) and not is_last and not set(literal) & set(ends)
    return ends + r"\x00-\x20\x7f" + (re.escape(literal[0]) if is_shared else "")
