"""The offer of one version of an application: definitions, each named by the digest of its exact text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, StringConstraints
from pydantic_core import to_json

from mcpfleet.contracts.base import Message
from mcpfleet.wire.language import LONGEST_TAG, TAG_PATTERN

DIGEST_LENGTH = 32
"""Hexadecimal digits of SHA-256 that name a thing on the bus (128 bits)."""

POOL_PATTERN = r"^[a-z0-9-]{1,63}$"
"""The form of pool and endpoint names, which are tokens of subjects and of NATS users."""

LONGEST_TIMEOUT: Final = 86_400.0
"""Seconds that a definition may give its calls: a day."""
MOST_DEFINITIONS: Final = 2_000
"""Definitions of one manifest."""
MOST_WORDS: Final = 64
"""Entries of a definition's `asks`, `scopes` and the like."""
LONGEST_NAME: Final = 2_048
"""Characters of a definition's name, which may be a URI; a tool's and a prompt's have 128."""
FILE_DIGEST_LENGTH: Final = 71
"""Characters of a file's digest."""
LONGEST_PATH: Final = 1_024
"""Characters of a file's path below its folder."""
CHUNK: Final = 1024 * 1024
"""Bytes of a file in one message; the last chunk has the rest."""


def digest_of(body: bytes) -> str:
    """Return the name of exact bytes: the first 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_LENGTH]


def canonical(value: Any) -> bytes:
    """Serialise with keys sorted at every depth: their original order means nothing."""
    return to_json(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def pool_named(name: str) -> str:
    """Return an application's name in the form of pool names.

    Letters become small ones, and all but `a-z 0-9 -` becomes dashes, of which none stands at an end. A name of which
    nothing is left, such as one in another script, gives `app-` and the first 8 digits of its SHA-256.
    """
    token = re.sub(r"[^a-z0-9-]+", "-", name.lower())[:63].strip("-")
    return token or f"app-{digest_of(name.encode(errors='surrogatepass'))[:8]}"


FileDigest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""The name of exact bytes, as clients verify them: `sha256:` and 64 lowercase hexadecimal digits."""


def file_digest(body: bytes) -> str:
    """Return the name of a file's exact bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


class FileRef(Message):
    """A file without its bytes (X1)."""

    path: str = Field(min_length=1, max_length=LONGEST_PATH)
    """Below its folder, with `/` between the parts."""
    digest: FileDigest
    size: int = Field(ge=0)
    """Bytes."""
    mime: str = Field(default="application/octet-stream", min_length=1, max_length=255)
    """The media type in a read's result."""

    @property
    def chunks(self) -> int:
        """The number of messages that carry its bytes; an empty file has one."""
        return max(1, -(-self.size // CHUNK))


MOST_SKILL_FILES: Final = 512
"""Files of a skill, which every host takes."""


class Skill(Message):
    """The skill that a resource is: its SKILL.md is the definition's `file` (X21)."""

    frontmatter: dict[str, Any]
    """All fields of SKILL.md's frontmatter."""
    files: tuple[FileRef, ...] = Field(max_length=MOST_SKILL_FILES, fail_fast=True)
    """All files of its folder, SKILL.md and those of nested skills too, by paths below the folder."""


Kind = Literal[
    "tool", "resource", "template", "prompt", "lister", "method", "notification", "extension", "experimental"
]
"""The kind of a definition; a lister lists resources that no declaration names.

The last four are of an application's own extensions: methods, notifications, what they belong to, and what is only
advertised."""
OWN_KINDS: Final = frozenset[Kind]({"method", "notification", "extension", "experimental"})
"""The kinds of own extensions, which stand apart from the lists, so that former releases go on without them."""


Tasking = Literal["required", "optional"]
"""Whether all calls of a tool are tasks, or those that its handler defers while it runs."""
LONGEST_RUN: Final = 7 * 86_400.0
"""Seconds of a task's run limit."""
LONGEST_RETENTION: Final = 90 * 86_400.0


CachedName = Literal["discover", "tools", "prompts", "resources", "resourceTemplates"]
CACHED: Final[tuple[CachedName, ...]] = ("discover", "tools", "prompts", "resources", "resourceTemplates")
"""The answers of a server that clients may keep, besides a resource's content: discovery, and lists by their member."""


class Rate(Message):
    """So many calls in a window of so many seconds."""

    calls: int = Field(gt=0)
    seconds: float = Field(gt=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)


class Definition(Message):
    """One tool, resource, template, prompt or lister as a worker declares it.

    Calls go by its digest, so equal definitions share their calls.

    Its text travels, and the digest names that text alone. So a release that knows fewer fields reads fewer, and still
    calls it by the same name.
    """

    kind: Kind
    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    """A tool's or a prompt's name, a resource's URI, a template's URI template, a lister's name, a method's name, an
    extension's identifier."""
    wire: dict[str, Any]
    """The declaration as 2026-07-28's lists show it: name, title, description, inputSchema, …; a lister has none."""
    timeout: float = Field(default=60.0, gt=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)
    """Seconds that a call may take, whatever progress it reports."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """Whether a client that leaves stops the work (D12)."""
    asks: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The questions that the handler needs, for example `elicitation.form`: a client without them is refused (D16)."""
    may_ask: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The questions that the handler asks of clients that can answer."""
    scopes: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The scopes that a caller's token needs: without them the definition is listed, but refused (D10)."""
    scopes_if: dict[str, dict[str, Any]] = Field(default={}, max_length=MOST_WORDS)
    """Further scopes, each with a JSON Schema: a call whose arguments fit the schema needs the scope too (X55)."""
    only_for: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The callers it exists for, as `tenant:`, `client:` or `subject:` and a pattern (`*`, `?`); empty is everybody.

    For all others it does not exist (D10). Policy is data, so an edge decides by it without asking anybody.
    """
    revisions: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The revisions of MCP in whose requests it exists; empty is all (X61)."""
    per_caller: bool = False
    """Its answers depend on the reader, so no shared cache may keep them (M46)."""
    permit: bool = False
    """A function of the application decides who may read it, at `pool.{pool}.{definition}.permit` (X50)."""
    ttl: float = Field(default=0.0, ge=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)
    """Seconds for which a client may keep a resource that it read, or a method's result."""
    list_ttl: float | None = Field(default=None, ge=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)
    """Seconds for which a client may keep what a lister lists; None as long as other lists of resources (X74)."""
    completes: tuple[str, ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    """The arguments of a prompt, or variables of a template, that have a completer (M48)."""
    rate: Rate | None = None
    """How often a caller's partition may call a tool or a method; the edge's own limit also holds."""
    task: Tasking | None = None
    """Whether a tool's calls are tasks."""
    run_limit: float = Field(default=3600.0, gt=0, le=LONGEST_RUN, allow_inf_nan=False)
    """Seconds that a task of the tool may run, without the waits for its client (D8)."""
    retention: float = Field(default=3600.0, gt=0, le=LONGEST_RETENTION, allow_inf_nan=False)
    """Seconds that a task of the tool can be read after its end (D8)."""
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=128)
    """The argument whose value identifies a repeated call (D9)."""
    idempotency_meta: bool = False
    """A call may name its key in the `_meta` of its request, if no argument is one (D9)."""
    again_is_safe: bool = False
    """A call with an uncertain outcome may run again under its idempotency key (D9)."""
    sanitizes: bool = False
    """A task of the tool keeps its raw result, and a worker clears it for each reader (K13)."""
    file: FileRef | None = None
    """The file that a resource is: edges answer its reads with these bytes, and ask no worker (X3)."""
    extension: str | None = Field(default=None, min_length=1, max_length=LONGEST_NAME)
    """The identifier of the own extension that a method or a notification belongs to (X41)."""
    mirrors: str | None = Field(default=None, min_length=1, max_length=128)
    """The parameter of a method that the header `Mcp-Name` repeats (X43)."""
    needs_client: bool = False
    """Clients that do not declare the method's extension are refused (X43)."""
    filter: str | None = Field(default=None, min_length=1, max_length=128)
    """The field of a listen stream's filter that names a notification's keys (X46)."""

    skill: Skill | None = None
    """The skill whose SKILL.md the resource is."""
    unlisted: bool = False
    """It can be used, and no list has it (X12)."""
    hosted: str | None = Field(default=None, min_length=1, max_length=DIGEST_LENGTH)
    """The digest of the source whose declaration it is: the source checks arguments, and its results are passed on as
    they are (B2, B4). None for an application's own."""

    @cached_property
    def text(self) -> str:
        """The exact announced text, as canonical JSON. Only its maker has it all: a definition that was read may
        lack fields."""
        return _canonical(self)

    @cached_property
    def digest(self) -> str:
        """Its name on the bus. Only its maker can compute it, as with `text`; others get it beside the definition."""
        return digest_of(self.text.encode())

    @property
    def files(self) -> tuple[FileRef, ...]:
        """The files that it names."""
        own = () if self.file is None else (self.file,)
        return own if self.skill is None else (*own, *self.skill.files)

    @cached_property
    def named_scopes(self) -> tuple[str, ...]:
        """All scopes that some call of it needs."""
        return tuple(dict.fromkeys((*self.scopes, *self.scopes_if)))

    @cached_property
    def may_be_asked(self) -> frozenset[str]:
        """All questions that the handler may ask of a client, needed or not."""
        return frozenset((*self.asks, *self.may_ask))


MOST_LANGUAGES: Final = 32
"""Message files of an application (X40)."""
LARGEST_MESSAGES: Final = 1024 * 1024
"""Bytes of a message file, before and after it is compiled (X40)."""

LanguageTag = Annotated[str, StringConstraints(pattern=TAG_PATTERN, max_length=LONGEST_TAG)]
"""The name of a language (BCP 47)."""
Translatable = Literal["descriptions", "instructions"]
"""The texts that are translated only where an application says so, since models choose by them (X33)."""


class Languages(Message):
    """The languages of an application's declared texts (X38)."""

    default: LanguageTag
    """The language of the texts as they are declared."""
    files: dict[LanguageTag, FileRef] = Field(max_length=MOST_LANGUAGES)
    """For each language, a JSON object from a text's context and source, joined by U+0004, to the translation."""
    translate: tuple[Translatable, ...] = ()
    """The texts that are translated besides titles."""

    @cached_property
    def offered(self) -> tuple[str, ...]:
        """All languages, the default first."""
        return tuple(dict.fromkeys((self.default, *sorted(self.files))))


class Named(NamedTuple):
    """A definition that was read, with the digest of its original text."""

    digest: str
    definition: Definition


class Manifest(Message):
    """The offer of one version of an application."""

    name: str = Field(min_length=1)
    """The application's own name, for `serverInfo`."""
    version: str = Field(min_length=1)
    title: str | None = None
    description: str | None = None
    icons: tuple[dict[str, Any], ...] = Field(default=(), max_length=MOST_WORDS, fail_fast=True)
    website_url: str | None = None
    instructions: str | None = None
    logs: bool = True
    """Its handlers may log to their clients (X66)."""
    ttl: dict[str, float] = Field(default={}, max_length=MOST_WORDS)
    """Seconds for which clients may keep its lists and the answer of `server/discover`, by `CACHED` (X74)."""
    languages: Languages | None = None
    """The languages of its declared texts; None for the one that they are declared in."""
    definitions: tuple[str, ...] = Field(default=(), max_length=MOST_DEFINITIONS, fail_fast=True)
    """Each definition's exact text."""
    extensions: tuple[str, ...] = Field(default=(), max_length=MOST_DEFINITIONS, fail_fast=True)
    """The exact text of each definition of an own extension (`OWN_KINDS`), in a member that former releases ignore."""

    @cached_property
    def named(self) -> tuple[Named, ...]:
        """All definitions, read.

        Raises:
            ValidationError: one is not a definition that this release knows.
        """
        texts = (*self.definitions, *self.extensions)
        return tuple(Named(digest_of(text.encode()), Definition.model_validate_json(text)) for text in texts)

    @cached_property
    def files(self) -> dict[str, FileRef]:
        """All files that it names, by their digests: it is listed only once the catalog has their bytes (X2)."""
        messages = () if self.languages is None else self.languages.files.values()
        return {ref.digest: ref for _, definition in self.named for ref in definition.files} | {
            ref.digest: ref for ref in messages
        }

    @cached_property
    def text(self) -> str:
        """The exact announced and stored text, as canonical JSON. Only its maker has it all, as with a definition."""
        return _canonical(self)

    @cached_property
    def digest(self) -> str:
        """The name of this manifest in announcements. Only its maker can compute it."""
        return digest_of(self.text.encode())


def _canonical(message: Message) -> str:
    """Write the members that differ from the defaults, with sorted keys: a later release's new field changes no
    digest here."""
    return canonical(message.model_dump(mode="json", exclude_defaults=True)).decode()
