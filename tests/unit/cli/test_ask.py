"""Questions of a server, answered by `--answer`, and what is said where nobody can answer."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.cli.ask import Answer, Answerer, GivenAnswers, MissingAnswer, about_field
from mcpfleet.cli.typed_arguments import WrongArguments, parameters

FORM: dict[str, Any] = {
    "message": "Where shall it go?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "title": "The city", "description": "Where it goes."},
            "size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
            "count": {"type": "integer", "default": 1, "maximum": 9},
        },
        "required": ["city", "size"],
    },
}
PAGE = {"mode": "url", "message": "Pay here", "url": "https://pay.example.com/1"}


async def answer(question: dict[str, Any], *answers: str, key: str = "delivery") -> Answer:
    return await Answerer(GivenAnswers(answers)).answer(key, question)


async def test_answers_fill_in_the_fields_and_defaults_the_rest() -> None:
    said = await answer(FORM, "city=Oslo", "size=large")
    assert said == {"action": "accept", "content": {"city": "Oslo", "size": "l", "count": 1}}


async def test_an_answer_for_one_question_goes_before_one_for_every_question() -> None:
    answers = ("city=Oslo", "delivery.city=Rome", "size=s")
    assert (await answer(FORM, *answers))["content"]["city"] == "Rome"
    assert (await answer(FORM, *answers, key="other"))["content"]["city"] == "Oslo"


@pytest.mark.parametrize("given", ["delivery=decline", "*=decline"])
async def test_a_whole_question_may_be_declined(given: str) -> None:
    assert await answer(FORM, given) == {"action": "decline"}


async def test_a_field_with_the_name_of_its_question_is_the_field() -> None:
    assert (await answer(FORM, "city=cancel", "size=s", key="city"))["content"]["city"] == "cancel"


async def test_a_page_is_answered_as_a_whole() -> None:
    assert await answer(PAGE, "page=accept", key="page") == {"action": "accept"}


async def test_without_a_terminal_a_missing_answer_names_the_option_and_the_fields() -> None:
    with pytest.raises(MissingAnswer) as raised:
        await answer(FORM, "city=Oslo")
    assert str(raised.value) == (
        "the server asks 'Where shall it go?', and no terminal is here to ask: "
        "give --answer size=… (s, l, required), or --answer delivery=decline"
    )
    with pytest.raises(MissingAnswer, match=r"open https://pay\.example\.com/1 and give --answer page=accept"):
        await answer(PAGE, key="page")


async def test_an_answer_that_fits_no_field_of_the_question_is_told_with_the_nearest() -> None:
    with pytest.raises(MissingAnswer, match=r"; it has no field 'citty'; did you mean city\?$"):
        await answer(FORM, "citty=Oslo")


async def test_nothing_is_accepted_for_somebody_who_answered_nothing() -> None:
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    with pytest.raises(MissingAnswer, match="--answer sure=accept"):
        await answer(form, key="sure")
    assert await answer(form, "sure=accept", key="sure") == {"action": "accept", "content": {}}


async def test_a_wrong_answer_names_its_field() -> None:
    with pytest.raises(WrongArguments, match="--answer count: is not valid: 10 is greater than the maximum of 9"):
        await answer(FORM, "city=Oslo", "size=s", "count=10")
    with pytest.raises(WrongArguments, match="--answer 'city' is not name=value"):
        GivenAnswers(["city"])


async def test_an_answer_for_which_nothing_asked_is_known() -> None:
    given = GivenAnswers(["city=Oslo", "size=s", "colour=red"])
    await Answerer(given).answer("delivery", FORM)
    assert given.unused() == ["colour"]


def test_a_field_is_described_with_its_title_rules_and_choices() -> None:
    city, size, count = parameters(FORM["requestedSchema"])
    assert about_field(city) == ["city: The city (text, required)", "  Where it goes."]
    assert about_field(size) == ["size (one of these, required)", "  1  Small", "  2  Large"]
    assert about_field(count) == ["count (integer, optional, at most 9)"]
