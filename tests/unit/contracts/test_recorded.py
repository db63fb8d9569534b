"""Old and new run side by side: what a former release wrote is read today, as it was meant then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from mcpfleet.bus.rpc import Rpc
from mcpfleet.contracts.call import CallBody, Completing
from tests.unit.contracts import record, recording
from tests.unit.contracts.kinds import BODIES, KINDS, SUBJECTS, Kind
from tests.unit.contracts.recording import holds, kinds_recorded, recorded
from tests.unit.contracts.test_messages import MESSAGES, rpcs


@pytest.mark.parametrize("kind", sorted(kinds_recorded()))
def test_what_a_former_release_wrote_means_the_same_today(kind: str) -> None:
    assert recorded(kind)
    assert record.misread(KINDS[kind]) == []


@pytest.mark.parametrize("rpc", rpcs().values(), ids=rpcs())
def test_every_rpc_is_recorded(rpc: Rpc[Any, Any]) -> None:
    """Where this fails: `python -m tests.unit.contracts.record`."""
    assert {rpc.question.__name__, rpc.answer.__name__} <= kinds_recorded()
    assert rpc.subject in {each.wrote.decode() for each in recorded(SUBJECTS)}


def test_every_kind_is_recorded() -> None:
    """Where this fails: `python -m tests.unit.contracts.record`."""
    assert set(KINDS) == kinds_recorded()


@pytest.mark.parametrize(
    ("means", "now", "same"),
    [
        ({"a": 1}, {"a": 1, "added": None}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "added": 2}]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, None, False),
    ],
)
def test_a_meaning_holds_though_fields_were_added(means: Any, now: Any, *, same: bool) -> None:
    assert holds(means, now) is same


def test_the_recorder_changes_nothing_that_is_recorded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds what is new, twice nothing, and writes nothing where an old message is read otherwise."""
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    monkeypatch.setattr(record, "KINDS", {"number": Kind("number", int, (b"1", b"2"))})
    assert record.main() == 0
    assert [(each.wrote, each.means) for each in recorded("number")] == [(b"1", 1), (b"2", 2)]
    monkeypatch.setattr(record, "KINDS", {"number": Kind("number", int, (b"1", b"3"))})
    assert record.main() == 0
    before = (tmp_path / "number.txt").read_bytes()
    assert [each.wrote for each in recorded("number")] == [b"1", b"2", b"3"]
    for read in (lambda raw: int(raw) + 1, lambda raw: int(raw, base=2)):  # another meaning, and none
        monkeypatch.setattr(record, "KINDS", {"number": Kind("number", read, (b"1",))})
        assert record.main() == 1
    assert (tmp_path / "number.txt").read_bytes() == before


def models() -> Iterator[BaseModel]:
    """Each message that is tried, and what is in it."""
    waiting: list[Any] = list(MESSAGES)
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseModel):
            yield each
            waiting += [getattr(each, name) for name in type(each).model_fields]
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, tuple):
            waiting += each


ONE_OF_EACH = {type(each): each for each in models()}
OPTIONAL = [
    (message, name)
    for message in ONE_OF_EACH.values()
    for name, field in type(message).model_fields.items()
    if not field.is_required()
]


def name_of(each: object) -> str:
    return each if isinstance(each, str) else type(each).__name__


@pytest.mark.parametrize(("message", "name"), OPTIONAL, ids=name_of)
def test_a_field_that_an_older_process_does_not_send_has_its_default(message: BaseModel, name: str) -> None:
    older = json.loads(message.model_dump_json(exclude_none=True))
    older.pop(name, None)
    default = type(message).model_fields[name].get_default(call_default_factory=True, validated_data={})
    assert getattr(type(message).model_validate_json(json.dumps(older)), name) == default


@pytest.mark.parametrize("message", ONE_OF_EACH.values(), ids=name_of)
@pytest.mark.parametrize("added", [None, 1, "text", [], {"a": {}}], ids=repr)
def test_a_field_that_a_newer_process_sends_is_ignored_wherever_it_stands(message: BaseModel, added: Any) -> None:
    newer = {**json.loads(message.model_dump_json(exclude_none=True)), "added_later": added}
    assert type(message).model_validate_json(json.dumps(newer)) == message


@pytest.mark.parametrize("body", BODIES)
def test_a_calls_body_ignores_what_is_new_and_does_without_what_is_absent(body: CallBody) -> None:
    written = json.loads(body.write())
    assert CallBody.read(json.dumps({**written, "added_later": {"a": 1}}).encode()) == body
    assert CallBody.read(json.dumps({"arguments": written["arguments"]}).encode()) == CallBody(body.arguments)


def test_what_is_completed_ignores_what_is_new() -> None:
    completing = {"argument": "book", "value": "Em", "added_later": 1}
    read = CallBody.read(json.dumps({"arguments": {}, "completing": completing}).encode())
    assert read.completing == Completing("book", "Em")


@pytest.mark.parametrize("kind", [name for name in KINDS if name.startswith("line-")])
def test_a_word_that_a_newer_process_adds_to_a_line_is_no_hindrance(kind: str) -> None:
    """Where words are a list (what a call adds, what a client lacks) it is one more; elsewhere it is ignored."""
    for each in recorded(kind):
        now = KINDS[kind].read(each.wrote + b" added")
        assert _without_the_word(now) == each.means, each


def _without_the_word(now: Any) -> Any:
    value = json.loads(json.dumps(now))
    for place in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(place, list) and place[-1:] == ["added"]:
            place.pop()
    return value
