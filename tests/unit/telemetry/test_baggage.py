"""W3C baggage: well-formed text goes on to a handler's libraries, any other is ignored."""

from __future__ import annotations

import pytest
from opentelemetry import baggage
from opentelemetry.sdk.trace import TracerProvider

from mcpfleet.telemetry.recording import RecordingTracer
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import BAGGAGE_LIMIT, checked_baggage


@pytest.mark.rule("M23", "X75")
@pytest.mark.parametrize(
    "text", ["a=1", " a = 1 ; secret , b=%20x;p=q", "k=v,k2=", ",".join(f"k{number}=1" for number in range(64))]
)
def test_what_is_well_formed_goes_on_as_it_came(text: str) -> None:
    assert checked_baggage(text) == text.strip()


@pytest.mark.rule("M23", "X75")
@pytest.mark.parametrize(
    "text",
    [
        "", "a", "=1", "a b=1", "a=1,", "a=ö", 'a="1"', "a=1;=x", "a=\n", 7, None,
        "a=" + "1" * BAGGAGE_LIMIT,
        ",".join(f"k{number}=1" for number in range(65)),
    ],
)  # fmt: skip
def test_what_is_malformed_is_ignored(text: object) -> None:
    assert checked_baggage(text) is None


@pytest.mark.rule("X75")
def test_it_is_current_for_the_length_of_a_block_where_spans_are_recorded() -> None:
    tracer = RecordingTracer(TracerProvider().get_tracer("test"))
    with tracer.carrying("tenant=acme,a=b%2Cx"):
        assert dict(baggage.get_all()) == {"tenant": "acme", "a": "b,x"}
    assert not baggage.get_all()
    with Tracer().carrying("tenant=acme"):
        assert not baggage.get_all()
