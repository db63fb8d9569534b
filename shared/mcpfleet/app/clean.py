"""What no text of a tool should hold: characters that a terminal obeys instead of showing (M40)."""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\r(?!\n)")
_ESCAPES: Final = (b"\\u00", b"\\b", b"\\f", b"\\r")


def without_controls(text: str) -> str:
    """Take out control characters but for tabs and line ends: what a tool read elsewhere may hold escape sequences.

    A carriage return stays before a line feed alone: by itself it lets a terminal write over what it has shown.
    """
    return _CONTROLS.sub("", text)


def may_hold_controls(body: bytes) -> bool:
    """Whether JSON text may hold such characters: cheap, and sometimes wrong in saying yes.

    JSON writes those below a space as escapes, and the others as themselves in UTF-8.
    """
    if b"\\" in body and any(escape in body for escape in _ESCAPES):
        return True
    return b"\x7f" in body or (not body.isascii() and b"\xc2" in body)
