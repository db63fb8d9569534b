"""A task's kept result reads back as the handler's value, for its sanitizer (K13)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, computed_field
from pydantic_core import to_json

from mcpfleet.app import Outcome, OutputError, content
from mcpfleet.app.result import Returns
from mcpfleet.contracts.task_payloads import is_kept, write_kept


@dataclass(frozen=True)
class Book:
    title: str
    since: dt.date


class Odd(BaseModel):
    """It writes another form than it reads."""

    model_config = ConfigDict(extra="forbid")
    pages: int

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def sheets(self) -> int:
        return self.pages // 2


TEXT, IMAGE = content.text("see"), content.image(b"x", "image/png")


@pytest.mark.rule("K13")
@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (str, "text", True),
        (None, None, True),
        (list[Book], [Book("emma", dt.date(1815, 12, 23))], True),
        (Book | None, None, True),
        (list[Book], [Book("emma", dt.date(1815, 12, 23))], False),
        (type(IMAGE), IMAGE, True),
        (list[type(IMAGE) | type(TEXT)], [TEXT, IMAGE], True),  # type: ignore[misc]  # these are types
        (Any, {"a": [1, None, 2**70]}, True),
        (Any, "text", True),
        (Outcome, Outcome([TEXT], {"a": 1}, is_error=True, meta={"x": 1}), True),
        (Outcome, Outcome([IMAGE]), True),
    ],
)
def test_it_comes_back_as_it_was(annotation: Any, value: Any, *, structured: bool) -> None:
    returns = Returns(annotation, None, structured=structured)
    kept = returns.kept(value)
    body = write_kept(kept.shape, to_json({**kept.fields(), "_meta": kept.outcome.meta or {}})).decode()
    assert is_kept(body)
    assert returns.read_back(body) == value


@pytest.mark.rule("K12")
def test_what_could_never_be_read_back_is_told_when_it_is_returned() -> None:
    with pytest.raises(OutputError, match="read back"):
        Returns(Odd, None).kept(Odd(pages=4))


@pytest.mark.rule("K13")
@pytest.mark.parametrize("text", ["", "{}", '["data"]', '["other",{}]', '["data",5]'])
def test_what_is_of_no_known_form_is_an_error(text: str) -> None:
    with pytest.raises(OutputError, match="another form"):
        Returns(str, None).read_back(text)
