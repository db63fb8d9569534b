"""Makes a prompt's messages, each with its role."""

from __future__ import annotations

from mcp_types import ContentBlock, PromptMessage, TextContent


def user(content: str | ContentBlock) -> PromptMessage:
    """Make a user's message; a handler that returns a text or a block needs none."""
    return PromptMessage(role="user", content=_block(content))


def assistant(content: str | ContentBlock) -> PromptMessage:
    """Make a message of the model."""
    return PromptMessage(role="assistant", content=_block(content))


def _block(content: str | ContentBlock) -> ContentBlock:
    return TextContent(text=content) if isinstance(content, str) else content
