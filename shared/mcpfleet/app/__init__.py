"""The names for authors of applications: `App` declares, and `Context` shows a handler its call.

This package alone re-exports: its users write `from mcpfleet.app import App`, and nothing deeper is stable.
"""

from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    Completion,
    ContentBlock,
    EmbeddedResource,
    Icon,
    ImageContent,
    PromptMessage,
    Resource,
    ResourceLink,
    Root,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

from mcpfleet.app import content, message, question, ui
from mcpfleet.app.app import App
from mcpfleet.app.cancellation import Cancelled, CancelSignal, Registration
from mcpfleet.app.client import Client, LogMessage, Progress
from mcpfleet.app.context import Context
from mcpfleet.app.errors import (
    AskError,
    ClientLacks,
    DeclarationError,
    DeclarationWarning,
    Declined,
    InvalidArguments,
    LoadError,
    NotAwaited,
    NotFound,
    OutputError,
    Problem,
    ProgressError,
    ProtocolError,
    QuestionChanged,
    RunError,
    ScopeNeeded,
    TextError,
    ToolError,
    TryAgain,
)
from mcpfleet.app.extension import Extension
from mcpfleet.app.handler import Answer, CallNext, Handler, Invocation, Request
from mcpfleet.app.injected import Depends, Lifespan
from mcpfleet.app.input import Answers, Asker, Question
from mcpfleet.app.lifespan import LifespanFailed
from mcpfleet.app.loading import load
from mcpfleet.app.localized import Localizer
from mcpfleet.app.notification import Notification
from mcpfleet.app.outcome import ABSENT, Outcome, without_controls
from mcpfleet.app.permit import Caller, Variables
from mcpfleet.app.resource import Page
from mcpfleet.app.router import Router
from mcpfleet.app.tool import Tool
from mcpfleet.app.ui import Csp, Ui
from mcpfleet.contracts.hints import BadUri
from mcpfleet.contracts.principal import Principal
from mcpfleet.process import events

__all__ = [
    "ABSENT",
    "Annotations",
    "Answer",
    "Answers",
    "App",
    "AskError",
    "Asker",
    "AudioContent",
    "BadUri",
    "BlobResourceContents",
    "CallNext",
    "Caller",
    "CancelSignal",
    "Cancelled",
    "Client",
    "ClientLacks",
    "Completion",
    "ContentBlock",
    "Context",
    "Csp",
    "DeclarationError",
    "DeclarationWarning",
    "Declined",
    "Depends",
    "EmbeddedResource",
    "Extension",
    "Handler",
    "Icon",
    "ImageContent",
    "InvalidArguments",
    "Invocation",
    "Lifespan",
    "LifespanFailed",
    "LoadError",
    "Localizer",
    "LogMessage",
    "NotAwaited",
    "NotFound",
    "Notification",
    "Outcome",
    "OutputError",
    "Page",
    "Principal",
    "Problem",
    "Progress",
    "ProgressError",
    "PromptMessage",
    "ProtocolError",
    "Question",
    "QuestionChanged",
    "Registration",
    "Request",
    "Resource",
    "ResourceLink",
    "Root",
    "Router",
    "RunError",
    "SamplingMessage",
    "ScopeNeeded",
    "TextContent",
    "TextError",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "TryAgain",
    "Ui",
    "Variables",
    "content",
    "events",
    "load",
    "message",
    "question",
    "ui",
    "without_controls",
]
