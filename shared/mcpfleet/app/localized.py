"""The texts of handlers in the language of their call: `ctx.t`, questions and forms (X33, X39)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from gettext import c2py
from types import MappingProxyType
from typing import Any, Final

from mcpfleet.app.errors import TextError

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
"""Doubled braces stand for themselves."""
_LABELS: Final = ("title", "description")
_CHOICES: Final = ("oneOf", "anyOf")
_ONE: Final = 1
_MOST_EXPRESSIONS: Final = 64


@dataclass(frozen=True)
class Messages:
    """The messages of one language, from its checked file."""

    texts: Mapping[str, str]
    """By context and source (`contracts.languages.key_of`)."""
    plurals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The forms of a text with a number, by the singular's source."""
    rule: str = "(n != 1)"
    """The number of the form for `n`, as gettext writes it."""


_NO_MESSAGES: Final = Messages(MappingProxyType({}))


class Localizer:
    """Translates the texts of one call."""

    def __init__(self, language: str | None = None, messages: Messages | None = None) -> None:
        """Translate into a language.

        Args:
            language: its tag; None where the application declares none.
            messages: None where the source stands for itself.
        """
        self.language = language
        self._messages = messages or _NO_MESSAGES

    def find(self, text: str) -> str:
        """Return a text's translation; the text itself where there is none."""
        return self._messages.texts.get(text, text)

    def render(self, text: str, plural: str | None, values: Mapping[str, object]) -> str:
        """Return a text's translation with its placeholders filled.

        Args:
            text: the source; of one thing, where there is a plural.
            plural: the source of several things; then `n` among the values is their number.
            values: by the names of placeholders.

        Raises:
            TextError: `n` is missing or no integer, or a placeholder has no value.
        """
        if plural is not None:
            number = values.get("n")
            if not isinstance(number, int) or isinstance(number, bool):
                raise TextError(f"ctx.t: {text!r} has a plural, so n= must be an integer, not {number!r}")
            found = self._plural(text, plural, number)
        else:
            found = self.find(text)
        return filled(found, values) if "{" in found or "}" in found else found

    def _plural(self, text: str, plural: str, number: int) -> str:
        if (forms := self._messages.plurals.get(text)) is not None:
            return forms[plural_rule(self._messages.rule)(abs(number))]
        return text if abs(number) == _ONE else plural

    def question(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a question to the user, with its message and its form's labels translated (X33)."""
        if not self._messages.texts or method != "elicitation/create":
            return params
        shown = {**params, "message": self.find(params["message"])}
        schema = params.get("requestedSchema")
        if isinstance(schema, dict) and isinstance(fields := schema.get("properties"), dict):
            shown["requestedSchema"] = {
                **schema,
                "properties": {name: self._field(each) for name, each in fields.items()},
            }
        return shown

    def _field(self, schema: Any) -> Any:
        """Translate the labels of a form's field and of its choices; names, values and constants stay (X34)."""
        if not isinstance(schema, dict):
            return schema
        shown = dict(schema)
        for name in _LABELS:
            if isinstance(text := schema.get(name), str):
                shown[name] = self.find(text)
        for name in _CHOICES:
            if isinstance(choices := schema.get(name), list):
                shown[name] = [self._field(each) for each in choices]
        if isinstance(items := schema.get("items"), dict):
            shown["items"] = self._field(items)
        return shown


SOURCE: Final = Localizer()
"""The texts as they are declared."""


@lru_cache(maxsize=_MOST_EXPRESSIONS)
def plural_rule(rule: str) -> Callable[[int], int]:
    """Return the function of a plural rule; raises ValueError where it is malformed."""
    made: Callable[[int], int] = c2py(rule)
    return made


def placeholders(text: str) -> frozenset[str] | None:
    """Return the names in a text's braces; None where its braces are unbalanced, or hold anything but a name."""
    found = set()
    for match in _PLACEHOLDER.finditer(text):
        name = match[1]
        if name is None:
            if match[0] not in ("{{", "}}"):
                return None
        elif name.isidentifier():
            found.add(name)
        else:
            return None
    return frozenset(found)


def filled(text: str, values: Mapping[str, object]) -> str:
    """Fill a text's placeholders; nothing but names is evaluated.

    Raises:
        TextError: one has no value, or the braces are unbalanced.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            if match[0] not in ("{{", "}}"):
                raise TextError(f"ctx.t: {text!r} has a single brace: double it, or put a name between two")
            return match[0][0]
        if name not in values:
            raise TextError(f"ctx.t: {text!r} has the placeholder {name!r}, and no {name}= is given")
        return str(values[name])

    return _PLACEHOLDER.sub(value, text)
