"""Which traces an edge records."""

import pytest

from mcpfleet.telemetry.trace import TraceContext, TraceSampling

SPAN = "00f067aa0ba902b7"


def claim(random: int, *, sampled: bool) -> TraceContext:
    """A client's trace whose 56 random bits are this number."""
    return TraceContext(f"{1:018x}{random:014x}", SPAN, sampled)


@pytest.mark.parametrize(
    ("ratio", "random", "recorded"),
    [
        (0, (1 << 56) - 1, False),
        (1, 0, True),
        (0.5, (1 << 55) - 1, False),
        (0.5, 1 << 55, True),
        (0.1, int(0.89 * (1 << 56)), False),
        (0.1, int(0.91 * (1 << 56)), True),
    ],
)
@pytest.mark.parametrize("flag", [True, False])
def test_a_strangers_flag_decides_nothing(ratio: float, random: int, recorded: bool, flag: bool) -> None:
    """Invariant 10: for a caller outside the trusted networks the ratio decides, by the trace's id."""
    decided = TraceSampling(ratio).parent(claim(random, sampled=flag), trusted=False)
    assert decided == claim(random, sampled=recorded)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("ratio", [0, 1])
def test_a_trusted_callers_flag_decides(ratio: float, flag: bool) -> None:
    """Invariant 10: from a trusted network the flag counts, whatever the ratio."""
    claimed = claim(1 << 55, sampled=flag)
    assert TraceSampling(ratio).parent(claimed, trusted=True) is claimed


def test_a_request_without_a_trace_begins_one() -> None:
    """None asks the tracer to begin a recorded trace; an unrecorded one has ids for the logs."""
    assert TraceSampling(1).parent(None, trusted=True) is None
    begun = TraceSampling(0).parent(None, trusted=True)
    assert begun is not None
    assert not begun.sampled
    assert TraceContext.parse(begun.header()) == begun


def test_the_ratio_is_the_share() -> None:
    """About the ratio of many new traces is recorded."""
    sampling = TraceSampling(0.25)
    recorded = sum(sampling.parent(None, trusted=False) is None for _ in range(4000))
    assert 800 < recorded < 1200  # seven standard deviations to either side


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.1.2.3", False),
        ("fd00::1", True),
        ("fe00::1", False),
        ("not an address", False),
        ("", False),
    ],
)
def test_networks_are_trusted_by_address(address: str, trusted: bool) -> None:
    """Both families, mapped addresses included; what is no address is not trusted."""
    assert TraceSampling.of(0.1, ["10.0.0.0/8", "fd00::/8"]).trusts(address) is trusted


def test_nobody_is_trusted_by_default() -> None:
    """Without a setting every caller is a stranger, this machine's own included."""
    assert not TraceSampling.of(1).trusts("127.0.0.1")


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_outside_its_range_is_refused(ratio: float) -> None:
    """The error says the range."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        TraceSampling.of(ratio)


def test_a_network_that_is_none_is_refused() -> None:
    """The error names it."""
    with pytest.raises(ValueError, match="example"):
        TraceSampling.of(0.1, ["example.com"])
