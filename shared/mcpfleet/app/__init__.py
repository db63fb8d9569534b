"""What an application's author imports: `App` declares, `Context` is what a handler sees of a call.

The one package that re-exports: its users write `from mcpfleet.app import App`, and nothing deeper is promised to them.
"""

from mcp_types import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)

from mcpfleet.app import content
from mcpfleet.app.app import App
from mcpfleet.app.cancellation import Cancelled, CancelSignal, Registration
from mcpfleet.app.client import Client
from mcpfleet.app.context import Context
from mcpfleet.app.errors import (
    DeclarationError,
    DeclarationWarning,
    InvalidArguments,
    LoadError,
    OutputError,
    Problem,
    ProgressError,
    ProtocolError,
    ToolError,
)
from mcpfleet.app.loading import load
from mcpfleet.app.outcome import ABSENT, Outcome
from mcpfleet.app.progress import Progress
from mcpfleet.app.tool import Tool
from mcpfleet.contracts.principal import Principal

__all__ = [
    "ABSENT",
    "App",
    "AudioContent",
    "CancelSignal",
    "Cancelled",
    "Client",
    "ContentBlock",
    "Context",
    "DeclarationError",
    "DeclarationWarning",
    "EmbeddedResource",
    "Icon",
    "ImageContent",
    "InvalidArguments",
    "LoadError",
    "Outcome",
    "OutputError",
    "Principal",
    "Problem",
    "Progress",
    "ProgressError",
    "ProtocolError",
    "Registration",
    "ResourceLink",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "content",
    "load",
]
