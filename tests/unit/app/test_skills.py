"""Skills as an author declares them: by the Agent Skills specification, and each mistake with its file (X21, X26)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcpfleet.app import App, DeclarationError, DeclarationWarning, load
from mcpfleet.contracts.manifest import file_digest
from mcpfleet.contracts.skills import entry

FRONT_DESK = Path(__file__).parents[3] / "examples" / "front_desk.py"


def skill(name: str, description: str = "Do it.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\n# {name}\n"


def folder(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, body in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body if isinstance(body, bytes) else body.encode())
    return root


def declared(root: Path, prefix: str = "") -> App:
    app = App("shop", version="1")
    app.skills(str(root), prefix=prefix)
    return app


def refused(root: Path, files: Mapping[str, str | bytes], why: str, prefix: str = "") -> None:
    with pytest.raises(DeclarationError, match=why):
        declared(folder(root, files), prefix)


@pytest.mark.rule("X21", "X24")
def test_a_skill_is_a_resource_with_an_entry_of_all_its_files(tmp_path: Path) -> None:
    """By URI, with digests and sizes; escapes are those of a normalized URI."""
    files: dict[str, str | bytes] = {
        "pdf/SKILL.md": skill("pdf", more="license: MIT\n"),
        "pdf/docs/a b.md": "x",
        "pdf/logo.png": b"\x89PNG",
        "README.md": "no part of any skill",
    }
    [handler] = declared(folder(tmp_path, files), "acme/tools").handlers
    definition = handler.definition
    assert definition.kind == "resource"
    assert definition.wire == {
        "uri": "skill://acme/tools/pdf/SKILL.md",
        "name": "pdf",
        "description": "Do it.",
        "mimeType": "text/markdown",
    }
    assert definition.skill is not None
    found = entry(definition.name, definition.skill)
    assert found["frontmatter"] == {"name": "pdf", "description": "Do it.", "license": "MIT"}
    assert [each["uri"] for each in found["resources"]] == [
        "skill://acme/tools/pdf/SKILL.md",
        "skill://acme/tools/pdf/docs/a%20b.md",
        "skill://acme/tools/pdf/logo.png",
    ]
    assert found["resources"][2] == {**found["resources"][2], "digest": file_digest(b"\x89PNG"), "size": 4}
    assert definition.file is not None
    assert definition.file.digest == found["resources"][0]["digest"]


@pytest.mark.rule("X21")
def test_a_nested_skill_has_its_own_entry_and_its_files_stand_in_the_outer_one(tmp_path: Path) -> None:
    """Both are complete."""
    files = {"a/SKILL.md": skill("a"), "a/b/SKILL.md": skill("b"), "a/b/x.md": "x"}
    outer, inner = (handler.definition.skill for handler in declared(folder(tmp_path, files)).handlers)
    assert outer is not None
    assert inner is not None
    assert [ref.path for ref in outer.files] == ["SKILL.md", "b/SKILL.md", "b/x.md"]
    assert [ref.path for ref in inner.files] == ["SKILL.md", "x.md"]


@pytest.mark.rule("X26")
@pytest.mark.parametrize("name", ["Pdf", "p_df", "-pdf", "pdf-", "p--df", "p" * 65, "pdf.x"])
def test_a_name_that_hosts_refuse_is_a_mistake(tmp_path: Path, name: str) -> None:
    """The error names the file and the rule."""
    refused(tmp_path, {f"{name}/SKILL.md": skill(name)}, rf"{name}/SKILL\.md: .*name|small letters")


@pytest.mark.rule("X26")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (skill("other"), "must be that of its folder"),
        (skill("pdf", '""'), "description: must be a text of 1 to 1024"),
        (skill("pdf", "x" * 1025), "description: must be a text of 1 to 1024"),
        (skill("pdf", "7"), "description: must be a text of 1 to 1024"),
        ("---\nname: pdf\n---\n", "description: must be a text of 1 to 1024"),
        ("---\ndescription: x\n---\n", "name: must be 1 to 64"),
        ("# pdf", "must begin with a frontmatter"),
        (skill("pdf", more="on: 1\n"), "line 4: .*quote it"),
        (b"---\nname: pdf\ndescription: \xff\n---\n", "not UTF-8"),
    ],
)
def test_a_skill_that_hosts_could_not_load_is_a_mistake(tmp_path: Path, text: str | bytes, why: str) -> None:
    """At the declaration, which the error names with the file and the line."""
    refused(tmp_path, {"pdf/SKILL.md": text}, rf"test_skills\.py.*pdf/SKILL\.md: .*{why}")


@pytest.mark.rule("X26")
def test_a_skill_has_as_much_as_every_host_takes(tmp_path: Path) -> None:
    """512 files, and 16 MiB."""
    files: dict[str, str | bytes] = {"a/SKILL.md": skill("a")} | {f"a/{n:03}": b"" for n in range(511)}
    declared(folder(tmp_path, files))
    refused(tmp_path, {"a/more": b""}, "up to 512 files, and this one has 513")
    large = {"b/SKILL.md": skill("b")} | {f"b/{n}": bytes(4 << 20) for n in range(4)}
    refused(tmp_path / "large", large, "up to 16777216 bytes")


@pytest.mark.rule("X26")
def test_one_name_at_two_paths_warns(tmp_path: Path) -> None:
    """Hosts must then tell them apart by their paths."""
    files = {"billing/refunds/SKILL.md": skill("refunds"), "support/refunds/SKILL.md": skill("refunds")}
    with pytest.warns(DeclarationWarning, match=r"'refunds' stands at 2 paths: skill://billing/refunds/SKILL\.md"):
        declared(folder(tmp_path, files))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declared(folder(tmp_path / "one", {"a/SKILL.md": skill("a")}))


@pytest.mark.parametrize(
    ("files", "prefix", "why"),
    [
        ({"README.md": "x"}, "", "has no skill"),
        ({"SKILL.md": skill("a")}, "", "name the folder above"),
        ({"a/SKILL.md": skill("a")}, "Acme", "the prefix 'Acme'"),
        ({"a/SKILL.md": skill("a")}, "a//b", "the prefix"),
        ({"Big/a/SKILL.md": skill("a")}, "", "small letters"),
    ],
)
def test_a_folder_that_has_no_skills_for_clients_is_a_mistake(
    tmp_path: Path, files: Mapping[str, str], prefix: str, why: str
) -> None:
    refused(tmp_path, files, why, prefix)


def test_a_folder_stands_beside_the_declaring_file_or_in_a_package(tmp_path: Path) -> None:
    app = App("shop", version="1")
    with pytest.raises(DeclarationError, match=r"tests/unit/app/no-such-folder is not a folder"):
        app.skills("no-such-folder")
    with pytest.raises(DeclarationError, match=r"'no_such_package' is no installed package"):
        app.skills("skills", package="no_such_package")
    with pytest.raises(DeclarationError, match=r"mcpfleet/app/no-such-folder is not a folder"):
        app.skills("no-such-folder", package="mcpfleet.app")


def test_a_uri_that_is_taken_is_a_mistake(tmp_path: Path) -> None:
    app = declared(folder(tmp_path, {"a/SKILL.md": skill("a")}))
    with pytest.raises(DeclarationError, match=r"skill://a/SKILL\.md.* is taken by"):
        app.skills(str(tmp_path))


def test_the_example_has_a_skill_that_names_its_tools() -> None:
    path = list(sys.path)
    try:
        app = load(str(FRONT_DESK))
    finally:
        sys.path[:] = path
        del sys.modules["front_desk"]
    [resource] = app.reads.values()
    definition = resource.definition
    assert definition.name in (app.instructions or "")
    assert definition.skill is not None
    assert [ref.path for ref in definition.skill.files] == ["SKILL.md", "references/fees.md"]
    text = (FRONT_DESK.parent / "skills/answer-a-reader/SKILL.md").read_text()
    assert all(f"`{tool}`" in text for tool in app.tools)
