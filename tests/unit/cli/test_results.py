"""A server's answer, as people and pipes see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.cli.results import Output, harmless, show_contents, show_json, show_messages, show_result
from mcpfleet.process.errors import ConfigurationError

PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def test_a_result_is_shown_with_its_blocks_and_its_text_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = [{"type": "text", "text": '{"total":3}'}, {"type": "text", "text": "Three in all."}, PICTURE]
    assert show_result({"structuredContent": {"total": 3, "more": None}, "content": said}, Output()) == 0
    printed = capsys.readouterr()
    assert (printed.out.count('"total"'), printed.err) == (2, "")
    assert '"more": null' in printed.out
    assert "Three in all." in printed.out
    assert "[image of type image/png, 3 bytes]" in printed.out


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"type": "text", "text": "a\nb"}, "a\nb"),
        ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, "[audio of type audio/wav, 1 bytes]"),
        (
            {"type": "image", "data": "!", "mimeType": "image/png"},
            "[image of type image/png, which is not valid Base64]",
        ),
        (
            {"type": "resource_link", "uri": "a:b", "name": "A", "mimeType": "text/plain", "size": 5},
            "[resource a:b: A, text/plain, 5 bytes]",
        ),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}}, "[resource a:b of type unknown, 3 bytes]"),
    ],
)
def test_each_kind_of_block_is_shown(block: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_result({"content": [block]}, Output())
    assert capsys.readouterr().out == f"{line}\n"


def test_an_error_is_told_apart_from_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_result({"isError": True, "content": [{"type": "text", "text": "no"}]}, Output()) == 1
    assert tuple(capsys.readouterr()) == ("", "no\n")
    assert show_result({"isError": True, "content": []}, Output(as_json=True)) == 1
    assert json.loads(capsys.readouterr().out)["isError"] is True


def test_binary_parts_are_saved_each_in_its_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.png"
    show_result({"content": [{"type": "text", "text": "two"}, PICTURE, PICTURE]}, Output(file=file))
    printed = capsys.readouterr().out
    assert (file.read_bytes(), (tmp_path / "p-2.png").read_bytes()) == (b"\0\0\0", b"\0\0\0")
    assert printed.startswith("two\n")
    assert f"saved as {tmp_path / 'p-2.png'}]" in printed


def test_an_answer_without_binary_parts_is_saved_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "text"
    show_contents({"contents": [{"uri": "a:b", "text": "terms"}]}, Output(file=file))
    assert file.read_text() == "terms\n"
    assert capsys.readouterr().out == ""


def test_a_place_that_cannot_be_written_is_refused_before_any_call(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(ConfigurationError, match="--out"):
            Output(file=place)


def test_messages_stand_below_their_roles(capsys: pytest.CaptureFixture[str]) -> None:
    content = {"type": "text", "text": "Review it"}
    show_messages({"messages": [{"role": "user", "content": content}]}, Output())
    assert capsys.readouterr().out == "user:\nReview it\n"


def test_a_terminal_gets_no_character_that_steers_it() -> None:
    assert harmless("a\x1b[2Jb\r\nc\td\x07") == "a\\x1b[2Jb\nc\td\\x07"


def test_json_on_a_terminal_steers_it_neither(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"a": "\x1b[2J\u009b31m\u202e\u2028 é"}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # no colours
    show_json(value)
    printed = capsys.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in printed)
    assert json.loads(printed) == value
