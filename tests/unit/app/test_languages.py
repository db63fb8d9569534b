"""Languages of an App: its message files, their checks, and what handlers make of them (X33, X38 to X40)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcpfleet.app import App, Context, DeclarationError, TextError
from mcpfleet.app.languages import MOST_MESSAGES
from mcpfleet.app.localized import filled, placeholders
from mcpfleet.contracts.manifest import LARGEST_MESSAGES, MOST_LANGUAGES, Languages

HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'


def write(root: Path, body: str, language: str = "de", domain: str = "shop") -> Path:
    """Write a message file."""
    path = root / language / "LC_MESSAGES" / f"{domain}.po"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + body, encoding="utf-8")
    return path


def declared(root: Path, **options: object) -> App:
    """An App with these languages."""
    app = App("shop", version="1")
    app.languages(str(root), **{"default": "en", "domain": "shop", **options})  # type: ignore[arg-type]  # some are wrong
    return app


def mistake(root: Path, **options: object) -> str:
    """Why an App cannot have these languages."""
    with pytest.raises(DeclarationError) as failed:
        declared(root, **options)
    assert "test_languages.py" in str(failed.value)
    return failed.value.why


def compiled(app: App) -> Mapping[str, Mapping[str, str]]:
    """The texts that edges get, by language."""
    languages = app.manifest().languages
    assert isinstance(languages, Languages)
    [source] = app.file_sources
    return {tag: json.loads(source.content(ref)) for tag, ref in languages.files.items()}


ENTRY = 'msgctxt "tool:a:title"\nmsgid "A"\nmsgstr "Ä"\n'


@pytest.mark.rule("X38")
def test_edges_get_declared_texts_alone_by_language_and_digest(tmp_path: Path) -> None:
    write(tmp_path, ENTRY + 'msgid "handler"\nmsgstr "Handler"\n')
    write(tmp_path, ENTRY, "pt_BR")
    write(tmp_path, ENTRY, "zh-Hant", domain="other")
    app = declared(tmp_path)
    assert compiled(app) == {tag: {"tool:a:title\x04A": "Ä"} for tag in ("de", "pt-BR")}
    languages = app.manifest().languages
    assert languages is not None
    assert languages.offered == ("en", "de", "pt-BR")
    assert {ref.digest for ref in languages.files.values()} == set(app.manifest().files)


@pytest.mark.rule("X39")
def test_missing_empty_and_fuzzy_translations_leave_the_source(tmp_path: Path) -> None:
    write(tmp_path, '#, fuzzy\nmsgid "a"\nmsgstr "ä"\n\nmsgid "b"\nmsgstr ""\n\nmsgid "c"\nmsgstr "ç"\n')
    ctx = Context(texts=declared(tmp_path).texts("de"))
    assert [ctx.t(each) for each in "abcd"] == ["a", "b", "ç", "d"]
    assert ctx.language == "de"


@pytest.mark.rule("X39")
@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("{n} of {m}", "{n}"),
        ("{n}", "{n} {m}"),
        ("{n}", "{x}"),
        ("{n}", "n"),
        ("none", "{n}"),
        ("{n}", "{n.__class__}"),
    ],
)
def test_other_placeholders_refuse_the_file_and_name_its_line(tmp_path: Path, source: str, translation: str) -> None:
    path = write(tmp_path, f'\nmsgid "{source}"\nmsgstr "{translation}"\n')
    assert mistake(tmp_path).startswith(f"{path}:5: ")


@pytest.mark.rule("X39")
def test_each_plural_form_has_the_placeholders_of_one_of_its_sources(tmp_path: Path) -> None:
    forms = 'msgid "one item of {name}"\nmsgid_plural "{n} items of {name}"\n'
    write(tmp_path, forms + 'msgstr[0] "ein Ding von {name}"\nmsgstr[1] "{n} Dinge von {name}"\n')
    text = declared(tmp_path).texts("de").render
    values = {"name": "Ann", "n": 1}
    assert text("one item of {name}", "{n} items of {name}", values) == "ein Ding von Ann"
    assert text("one item of {name}", "{n} items of {name}", {**values, "n": 2}) == "2 Dinge von Ann"
    write(tmp_path, forms + 'msgstr[0] "ein Ding"\nmsgstr[1] "{n} Dinge von {name}"\n')
    assert "{name}" in mistake(tmp_path)


@pytest.mark.rule("X33")
@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("pl", {0: 2, 1: 0, 2: 1, 5: 2, 12: 2, 22: 1, 112: 2}),
        ("ja", dict.fromkeys((0, 1, 2, 7), 0)),
        ("ar", {0: 0, 1: 1, 2: 2, 3: 3, 11: 4, 100: 5}),
        ("fr", {0: 0, 1: 0, 2: 2, 1_000_000: 1}),
    ],
)
def test_each_language_has_its_own_plural_forms(tmp_path: Path, language: str, forms: Mapping[int, int]) -> None:
    several = "".join(f'msgstr[{index}] "{{n}} form {index}"\n' for index in range(max(forms.values()) + 1))
    write(tmp_path, f'msgid "{{n}} item"\nmsgid_plural "{{n}} items"\n{several}', language)
    ctx = Context(texts=declared(tmp_path).texts(language))
    assert {n: ctx.t("{n} item", "{n} items", n=n) for n in forms} == {n: f"{n} form {at}" for n, at in forms.items()}


def test_the_source_has_two_forms() -> None:
    ctx = Context()
    assert [ctx.t("{n} item", "{n} items", n=n) for n in (0, 1, 2, -1)] == ["0 items", "1 item", "2 items", "-1 item"]
    assert ctx.language is None


@pytest.mark.parametrize(
    ("text", "plural", "values", "why"),
    [
        ("{n} item", "{n} items", {}, "n= must be an integer"),
        ("{n} item", "{n} items", {"n": "2"}, "n= must be an integer"),
        ("{n} item", "{n} items", {"n": True}, "n= must be an integer"),
        ("{name}", None, {}, "no name= is given"),
        ("{", None, {}, "single brace"),
    ],
)
def test_a_text_without_its_values_is_a_mistake(
    text: str, plural: str | None, values: Mapping[str, object], why: str
) -> None:
    with pytest.raises(TextError, match=why):
        Context().t(text, plural, **values)


def test_only_names_are_filled_and_doubled_braces_stay_braces() -> None:
    assert filled("{{x}} {a}{b}", {"a": "{b}", "b": 1}) == "{x} {b}1"
    assert placeholders("{{x}} {a}") == frozenset({"a"})
    assert placeholders("{a.b}") is None
    with pytest.raises(TextError):
        filled("{a.__class__}", {"a": 1})


@pytest.mark.rule("X40")
def test_the_bounds_of_languages_messages_and_files_are_told(tmp_path: Path) -> None:
    for number in range(MOST_LANGUAGES):
        write(tmp_path / "many", ENTRY, f"q{chr(97 + number // 26)}{chr(97 + number % 26)}")
    declared(tmp_path / "many")
    write(tmp_path / "many", ENTRY, "zu")
    assert f"up to {MOST_LANGUAGES} languages" in mistake(tmp_path / "many")

    write(tmp_path / "long", "".join(f'msgid "{number}"\nmsgstr "x"\n' for number in range(MOST_MESSAGES)))
    declared(tmp_path / "long")
    write(tmp_path / "long", "".join(f'msgid "{number}"\nmsgstr "x"\n' for number in range(MOST_MESSAGES + 1)))
    assert f"up to {MOST_MESSAGES} messages" in mistake(tmp_path / "long")

    write(tmp_path / "large", f'msgid "a"\nmsgstr "{"x" * LARGEST_MESSAGES}"\n')
    assert f"over {LARGEST_MESSAGES} bytes" in mistake(tmp_path / "large")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("mgsid\n", ":4: "),
        ('msgid "a"\nmsgid "b"\n', "missing msgstr"),
        ('msgid "a"\nmsgstr[x] "b"\n', "not a gettext file"),
    ],
)
def test_a_malformed_file_is_told_with_its_place(tmp_path: Path, body: str, why: str) -> None:
    path = write(tmp_path, body)
    found = mistake(tmp_path)
    assert str(path) in found
    assert why in found


@pytest.mark.parametrize(
    "forms",
    [
        "nplurals=1; plural=n != 1;",
        "nplurals=0; plural=0;",
        "nplurals=2; plural=import;",
        "nplurals=2; plural=(n != 0 && n % 1000000 == 0) ? 2 : n != 1;",
    ],
)
def test_a_plural_rule_must_lead_to_one_of_the_forms(tmp_path: Path, forms: str) -> None:
    path = write(tmp_path, ENTRY)
    path.write_text(HEAD + f'"Plural-Forms: {forms}\\n"\n' + ENTRY, encoding="utf-8")
    assert f"{path}: Plural-Forms" in mistake(tmp_path)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"default": "german!"}, "the default language 'german!' must be the tag"),
        ({"domain": "../shop"}, "the domain '../shop' must be"),
        ({"domain": "other"}, "there is no file of this form"),
        ({"translate": {"names"}}, "translate must be of descriptions, instructions, not 'names'"),
    ],
)
def test_a_wrong_option_is_told_where_it_is_declared(tmp_path: Path, options: dict[str, object], why: str) -> None:
    write(tmp_path, ENTRY)
    assert why in mistake(tmp_path, **options)


def test_a_folder_that_names_no_language_and_one_that_names_it_twice_are_told(tmp_path: Path) -> None:
    write(tmp_path / "a", ENTRY, "sr@latin")
    assert "must be the tag of a language" in mistake(tmp_path / "a")
    write(tmp_path / "b", ENTRY, "pt_BR")
    write(tmp_path / "b", ENTRY, "pt-BR")
    assert "another folder is of the language pt-BR too" in mistake(tmp_path / "b")


def test_languages_are_declared_once(tmp_path: Path) -> None:
    write(tmp_path, ENTRY)
    app = declared(tmp_path)
    with pytest.raises(DeclarationError, match="declared already"):
        app.languages(str(tmp_path))
