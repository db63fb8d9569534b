"""What a tool's declaration says besides its function, and the rules for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mcp_types import Icon, ToolAnnotations

from mcpfleet.app.errors import Mistake
from mcpfleet.contracts.manifest import LONGEST_TIMEOUT, MOST_WORDS

ASKS: Final = frozenset({"elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"})
"""What a handler may ask of a client (D16)."""

OnDisconnect = Literal["cancel", "continue"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One tool's declaration, checked when it is made.

    Raises:
        Mistake: a rule below is broken.
    """

    name: str
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None
    timeout: float = 60.0
    on_disconnect: OnDisconnect = "cancel"
    asks: Collection[str] = ()
    scopes: Collection[str] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Mistake(f"tool name {self.name!r} must have 1 to 128 characters of A-Z a-z 0-9 _ - .")
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise Mistake(f"timeout must be over 0 and up to {LONGEST_TIMEOUT:.0f} seconds, not {self.timeout}")
        if self.on_disconnect not in ("cancel", "continue"):
            raise Mistake(f'on_disconnect must be "cancel" or "continue", not {self.on_disconnect!r}')
        if isinstance(self.asks, str) or isinstance(self.scopes, str):
            raise Mistake("asks and scopes are collections of strings, not one string")
        if unknown := set(self.asks) - ASKS:
            raise Mistake(f"asks has {_listed(unknown)}; known are {_listed(ASKS)}")
        if len(self.scopes) > MOST_WORDS:
            raise Mistake(f"scopes has over {MOST_WORDS} entries")
        check_scopes(self.scopes)
        check_icons(self.icons)


def check_scopes(scopes: Iterable[str]) -> None:
    """Hold scopes to the form in which a challenge can name them (RFC 6749, section 3.3).

    Raises:
        Mistake: one has another form.
    """
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise Mistake(f"scope {scope!r} is no scope: it must have no space, quote or backslash")


def check_icons(icons: Iterable[Icon]) -> None:
    """Hold icons to the addresses from which a client will load them (M28).

    Raises:
        Mistake: one has another scheme.
    """
    for icon in icons:
        if not icon.src.lower().startswith(("https:", "data:")):
            raise Mistake(f"icon {icon.src!r} must be an https: or data: URI")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))
