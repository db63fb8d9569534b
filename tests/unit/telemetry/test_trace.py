"""The trace context of a request: what is read, what is refused, what goes out again."""

import re

import pytest

from mcpfleet.telemetry.trace import TraceContext

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_a_header_is_read(flags: str, sampled: bool) -> None:
    """M23: ids as they came, and of the flags only the one that says sampled."""
    assert TraceContext.parse(f"00-{TRACE}-{SPAN}-{flags}") == TraceContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01more",
    ],
)
def test_a_malformed_header_is_ignored(header: str | None) -> None:
    """M23: what a client sends wrong is no trace, and no error."""
    assert TraceContext.parse(header) is None


def test_a_later_version_may_say_more() -> None:
    """Trace Context 3.2.2: a version that is not known yet is read as far as it is known."""
    assert TraceContext.parse(f"cc-{TRACE}-{SPAN}-01-what-comes") == TraceContext(TRACE, SPAN, sampled=True)


@pytest.mark.parametrize("sampled", [True, False])
def test_a_header_survives_the_way_through(sampled: bool) -> None:
    """M23: what is emitted is W3C's form, and reads back as the same point of the trace."""
    context = TraceContext(TRACE, SPAN, sampled, "vendor=value")
    assert context.header() == f"00-{TRACE}-{SPAN}-0{int(sampled)}"
    assert TraceContext.parse(context.header(), context.state) == context


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (None, ""),
        ("", ""),
        ("a=1", "a=1"),
        (" a=1 ", "a=1"),
        ("a=1,tenant@vendor=x y", "a=1,tenant@vendor=x y"),
        ("a=1, ,b=2", "a=1, ,b=2"),
        (",".join(f"k{n}=v" for n in range(32)), ",".join(f"k{n}=v" for n in range(32))),
        (",".join(f"k{n}=v" for n in range(33)), ""),
        ("A=1", ""),
        ("a", ""),
        ("a=1=2", ""),
        ("a=1\r\nx-injected: yes", ""),
        ("a=\xe9", ""),
        ("a=" + "v" * 511, ""),
    ],
)
def test_a_malformed_state_costs_only_itself(state: str | None, kept: str) -> None:
    """M23: the state goes on into other protocols' headers, so it is well formed or absent; the trace stays."""
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-01", state)
    assert context is not None
    assert context.state == kept


def test_fresh_ids_are_well_formed_and_differ() -> None:
    """A trace that begins here has ids that everybody accepts."""
    one, other = TraceContext.fresh(sampled=True), TraceContext.fresh(sampled=True)
    assert TraceContext.parse(one.header()) == one
    assert re.fullmatch("[0-9a-f]{32}", one.trace_id)
    assert (one.trace_id, one.span_id) != (other.trace_id, other.span_id)


def test_resampling_changes_the_decision_only() -> None:
    """The trace stays the caller's, whatever is decided about recording it."""
    context = TraceContext(TRACE, SPAN, sampled=True, state="a=1")
    assert context.resampled(sampled=False) == TraceContext(TRACE, SPAN, sampled=False, state="a=1")
    assert context.resampled(sampled=True) is context
