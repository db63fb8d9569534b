"""A prompt's messages, each with its speaker."""

from __future__ import annotations

from mcp_types import ContentBlock, PromptMessage, TextContent


def user(content: str | ContentBlock) -> PromptMessage:
    """Let the user say it; a handler that returns a text or a block need not."""
    return PromptMessage(role="user", content=_block(content))


def assistant(content: str | ContentBlock) -> PromptMessage:
    """Let the model have said it."""
    return PromptMessage(role="assistant", content=_block(content))


def _block(content: str | ContentBlock) -> ContentBlock:
    return TextContent(text=content) if isinstance(content, str) else content
