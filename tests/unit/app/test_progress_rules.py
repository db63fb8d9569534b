"""The rule for progress reports, as a table (P2, M60)."""

import math

import pytest

from mcpfleet.app.client import Progress, is_news
from mcpfleet.app.errors import ProgressError


@pytest.mark.rule("P2")
@pytest.mark.parametrize(
    ("last", "value", "is_sent"),
    [
        pytest.param(None, 0, True, id="the first, even if it is 0"),
        pytest.param(None, -5, True, id="the first, even if it is negative"),
        pytest.param(0, 1, True, id="greater"),
        pytest.param(0.1, 0.2, True, id="greater by a fraction"),
        pytest.param(2**53, 2**53 + 1, True, id="greater where doubles are equal"),
        pytest.param(0, 10**400, True, id="an integer that no double holds"),
        pytest.param(1, 1, False, id="equal"),
        pytest.param(1, 1.0, False, id="equal in another type"),
    ],
)
def test_greater_is_sent_and_equal_is_dropped(last: float | None, value: float, is_sent: bool) -> None:
    assert is_news(last, Progress(value)) is is_sent


@pytest.mark.rule("P2")
@pytest.mark.parametrize(
    ("last", "report"),
    [
        pytest.param(1, Progress(0), id="less"),
        pytest.param(None, Progress(math.nan), id="NaN"),
        pytest.param(None, Progress(math.inf), id="infinite"),
        pytest.param(None, Progress(1, total=math.inf), id="infinite total"),
        pytest.param(None, Progress(1, total=math.nan), id="total that is NaN"),
    ],
)
def test_less_or_not_finite_is_an_error(last: float | None, report: Progress) -> None:
    with pytest.raises(ProgressError):
        is_news(last, report)


def test_a_progress_error_is_a_value_error() -> None:
    assert issubclass(ProgressError, ValueError)
