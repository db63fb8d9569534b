"""Makes content blocks from bytes, texts and URIs."""

from __future__ import annotations

import base64

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def text(value: str) -> TextContent:
    """Make a text; a handler that returns a `str` need not."""
    return TextContent(text=value)


def image(data: bytes, mime_type: str) -> ImageContent:
    """Make an image of a file's bytes; `mime_type` is for example `image/png`."""
    return ImageContent(data=_base64(data), mime_type=mime_type)


def audio(data: bytes, mime_type: str) -> AudioContent:
    """Make a sound of a file's bytes; `mime_type` is for example `audio/wav`."""
    return AudioContent(data=_base64(data), mime_type=mime_type)


def resource(uri: str, body: str | bytes, mime_type: str | None = None) -> EmbeddedResource:
    """Put a whole resource into the result: a text, or bytes as a blob."""
    if isinstance(body, str):
        return EmbeddedResource(resource=TextResourceContents(uri=uri, text=body, mime_type=mime_type))
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=_base64(body), mime_type=mime_type))


def link(
    uri: str, name: str, *, title: str | None = None, description: str | None = None, mime_type: str | None = None
) -> ResourceLink:
    """Point to a resource that the client may read."""
    return ResourceLink(uri=uri, name=name, title=title, description=description, mime_type=mime_type)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
