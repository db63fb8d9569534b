"""The languages of an App: gettext files, read and checked by Babel, compiled to JSON for edges (X38 to X40)."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from mcpfleet.app.errors import Mistake
from mcpfleet.app.file_source import NOTHING_READ, FileSource, Reading
from mcpfleet.app.folder import Folder, Stamp
from mcpfleet.app.localized import Localizer, Messages, placeholders, plural_rule
from mcpfleet.app.site import Site
from mcpfleet.contracts.languages import key_of
from mcpfleet.contracts.manifest import (
    LARGEST_MESSAGES,
    MOST_LANGUAGES,
    FileRef,
    Languages,
    Translatable,
    file_digest,
)
from mcpfleet.wire.language import LONGEST_TAG, TAG_PATTERN, look_up, tag_of

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog, Message

MOST_MESSAGES: Final = 10_000
"""Messages of one file (X40)."""
_MOST_FORMS: Final = 8
"""Plural forms of a language; Arabic has six."""
_TRIED: Final = (*range(1_000), *(10**power for power in range(3, 19)))
"""Numbers for which the rule of plurals is tried: some languages have a form of their own for millions."""
_OPTIONS: Final[tuple[Translatable, ...]] = ("descriptions", "instructions")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MIME: Final = "application/json"
NEEDS_BABEL: Final = "languages need Babel: pip install 'mcpfleet[languages]'"


@dataclass(frozen=True)
class Read:
    """The message files of a folder."""

    messages: Mapping[str, Messages]
    """By language."""
    refs: Mapping[str, FileRef]
    bodies: Mapping[str, bytes] = field(compare=False)
    """The compiled files, by their digests."""


class LanguageSource(FileSource):
    """All message files of one folder: `de/LC_MESSAGES/shop.po` is that of German."""

    def __init__(self, folder: Folder, site: Site, *, default: str, domain: str, translate: Collection[str]) -> None:
        """Read nothing yet.

        Args:
            folder: has a folder for each language.
            site: the declaration.
            default: the tag of the language that texts are declared in.
            domain: the name of the files, without their ending.
            translate: what is translated besides titles.

        Raises:
            Mistake: a name has another form, or Babel is missing.
        """
        super().__init__(folder, site)
        try:
            import babel.messages.pofile  # noqa: F401, PLC0415  # few Apps have languages
        except ImportError:
            raise Mistake(NEEDS_BABEL) from None
        if not _DOMAIN.fullmatch(domain):
            raise Mistake(f"the domain {domain!r} must be 1 to 64 letters of A-Z a-z 0-9 . _ -: that of a file's name")
        if unknown := set(translate) - set(_OPTIONS):
            raise Mistake(f"translate must be of {', '.join(_OPTIONS)}, not {min(unknown)!r}")
        self._default = _tag(default, f"the default language {default!r}")
        self._domain = domain
        self._translate = tuple(each for each in _OPTIONS if each in translate)
        self._files = re.compile(rf"([^/]+)/LC_MESSAGES/{re.escape(domain)}\.po")
        self.languages = Languages(default=self._default, files={}, translate=self._translate)
        """For the manifest."""
        self._messages: Mapping[str, Messages] = {}

    def stamp(self) -> Stamp:
        """Return the folder's stamp."""
        return self.folder.stamp()

    def read(self) -> Reading:
        """Read and compile every message file."""
        messages: dict[str, Messages] = {}
        refs: dict[str, FileRef] = {}
        bodies: dict[str, bytes] = {}
        for path in self.folder.paths():
            if (match := self._files.fullmatch(path)) is None:
                continue
            shown = self.folder.shown(path)
            tag = _tag(match[1], f"{shown}: the folder {match[1]!r}")
            if tag in messages:
                raise Mistake(f"{shown}: another folder is of the language {tag} too")
            if len(messages) == MOST_LANGUAGES:
                raise Mistake(f"{shown}: an App has up to {MOST_LANGUAGES} languages")
            messages[tag] = _compiled(self.folder.read(path, LARGEST_MESSAGES).body, tag, shown)
            declared = {key: text for key, text in messages[tag].texts.items() if "\x04" in key}
            body = to_json(dict(sorted(declared.items())))
            if len(body) > LARGEST_MESSAGES:
                raise Mistake(f"{shown}: it has over {LARGEST_MESSAGES} bytes once it is compiled")
            refs[tag] = FileRef(path=path, digest=file_digest(body), size=len(body), mime=_MIME)
            bodies[refs[tag].digest] = body
        if not messages:
            shown = self.folder.shown(f"LANGUAGE/LC_MESSAGES/{self._domain}.po")
            raise Mistake(f"{shown}: there is no file of this form; `mcpfleet messages` writes a template of it")
        return Reading(tuple(refs.values()), Read(messages, refs, bodies))

    def take(self, reading: Reading) -> None:
        """Translate by these files from now on."""
        self._messages = reading.found.messages
        self.languages = Languages(default=self._default, files=dict(reading.found.refs), translate=self._translate)
        if self.reading is not NOTHING_READ:
            self.declarations.changed()

    def content(self, ref: FileRef) -> bytes:
        """Return a compiled file of the last reading."""
        found: bytes = self.reading.found.bodies[ref.digest]
        return found

    def texts(self, language: str | None) -> Localizer:
        """Return what translates into a language, or into the one on offer that is nearest to it."""
        tag = look_up(language, self.languages.offered) if language is not None else None
        return Localizer(tag or self._default, self._messages.get(tag or self._default))


def _tag(name: str, shown: str) -> str:
    tag = tag_of(name)
    if not re.fullmatch(TAG_PATTERN, tag) or len(tag) > LONGEST_TAG:
        raise Mistake(f"{shown} must be the tag of a language, such as de, pt_BR or zh-Hant")
    return tag


def _compiled(body: bytes, tag: str, shown: str) -> Messages:
    """Read and check a message file.

    Raises:
        Mistake: it cannot be used; the sentence names the file and the line.
    """
    catalog = _catalog(body, tag, shown)
    texts: dict[str, str] = {}
    plurals: dict[str, tuple[str, ...]] = {}
    rule = str(catalog.plural_expr)
    _check_rule(rule, catalog.num_plurals, shown)
    for count, message in enumerate(_translated(catalog), 1):
        where = f"{shown}:{message.lineno}"
        if count > MOST_MESSAGES:
            raise Mistake(f"{where}: a file has up to {MOST_MESSAGES} messages")
        sources = _several(message.id)
        strings = _several(message.string)
        _check_placeholders(sources, strings, where, has_context=bool(message.context))
        key = key_of(message.context or None, sources[0])
        if len(sources) > 1:
            plurals[key] = strings
        else:
            texts[key] = strings[0]
    return Messages(texts, plurals, rule)


def _catalog(body: bytes, tag: str, shown: str) -> Catalog:
    from babel.messages.pofile import PoFileError, read_po  # noqa: PLC0415

    try:
        try:
            return read_po(io.BytesIO(body), tag.replace("-", "_"), ignore_obsolete=True, abort_invalid=True)
        except PoFileError as error:
            raise Mistake(f"{shown}:{error.lineno + 1}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # Babel checks no more than that
        raise Mistake(f"{shown}: it is not a gettext file: {error}") from None


def _translated(catalog: Catalog) -> Iterator[Message]:
    """Yield the messages that have a translation: the others are shown in their source (X39)."""
    for message in catalog:
        if message.id and not message.fuzzy and all(_several(message.string)):
            yield message


def _several(texts: Any) -> tuple[str, ...]:
    return tuple(texts) if isinstance(texts, list | tuple) else (texts,)


def _check_rule(rule: str, forms: int, shown: str) -> None:
    """Check that the plural rule names one of the forms for each number."""
    if not 0 < forms <= _MOST_FORMS:
        raise Mistake(f"{shown}: Plural-Forms: nplurals must be 1 to {_MOST_FORMS}, not {forms}")
    try:
        found = {plural_rule(rule)(number) for number in _TRIED}
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Mistake(f"{shown}: Plural-Forms: {rule!r} cannot be read: {error}") from None
    if max(found) >= forms or min(found) < 0:
        raise Mistake(f"{shown}: Plural-Forms: {rule!r} leads to form {max(found)}, and nplurals is {forms}")


def _check_placeholders(sources: tuple[str, ...], strings: tuple[str, ...], where: str, *, has_context: bool) -> None:
    """Check that a translation has the placeholders of its source; one of its plural forms may lack the number (X39).

    Declared texts are shown as they are, so that their braces need only be the same.
    """
    named = [placeholders(each) for each in sources]
    if has_context and None in named:
        return
    needed = [each or frozenset() for each in named]
    wanted, allowed = frozenset.intersection(*needed), frozenset.union(*needed)
    for string in strings:
        found = placeholders(string)
        if found is None:
            raise Mistake(f"{where}: {string!r} must have nothing but names in its braces, and double other braces")
        if differing := (wanted - found) | (found - allowed):
            names = ", ".join(f"{{{each}}}" for each in sorted(differing))
            raise Mistake(f"{where}: the placeholders of the translation differ from its source: {names}")
