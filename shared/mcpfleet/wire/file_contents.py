"""The contents of a resource that is a file: its exact bytes, as text where that is the same (X4)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

_TEXTUAL: Final = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/(json|xml|yaml|toml|javascript|ecmascript|graphql|sql|x-sh|x-yaml|x-ndjson|xhtml\+xml)",
    re.IGNORECASE,
)


def is_textual(mime: str) -> bool:
    """Return whether a media type is one of texts."""
    return _TEXTUAL.fullmatch(mime.partition(";")[0].strip()) is not None


def content(body: bytes, mime: str) -> tuple[str, str]:
    """Return the member of a contents block that carries a file, and its value.

    That is `text` only for a textual media type whose bytes are UTF-8, since a client must get the very same bytes.
    """
    if is_textual(mime):
        try:
            return "text", body.decode()
        except UnicodeDecodeError:
            pass
    return "blob", base64.b64encode(body).decode()


def content_member(body: bytes, mime: str) -> bytes:
    """Return the same as a member of a JSON object, which is one line."""
    name, value = content(body, mime)
    return b'"%b":%b' % (name.encode(), to_json(value))


def block(uri: str, mime: str, meta: Mapping[str, Any] | None, member: bytes) -> bytes:
    """Compose a contents block.

    Args:
        uri: the URI that was read.
        mime: the media type.
        meta: its `_meta`, as its entry in lists has it; None for none.
        member: as `content_member`.
    """
    head = {"uri": uri, "mimeType": mime} | ({"_meta": dict(meta)} if meta else {})
    return b"%b,%b}" % (to_json(head)[:-1], member)
