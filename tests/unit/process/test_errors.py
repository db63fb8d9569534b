"""Errors in an operator's words."""

from mcpfleet.process.errors import ConfigurationError, causes, leaves


def test_groups_are_opened_to_their_leaves() -> None:
    """Task groups wrap in layers; what counts is inside."""
    one, two, three = ValueError("1"), KeyError("2"), OSError("3")
    assert leaves(ExceptionGroup("a", [one, ExceptionGroup("b", [two, three])])) == [one, two, three]
    assert leaves(one) == [one]


def test_an_error_tells_what_led_to_it() -> None:
    """Nearest first."""
    error = ConnectionError("no NATS at nats://n:4222")
    error.__cause__ = OSError("refused")
    assert causes(error) == ["ConnectionError: no NATS at nats://n:4222", "OSError: refused"]


def test_what_was_handled_when_an_error_came_led_to_it_too() -> None:
    """Python keeps it as the context, also where nobody wrote `from`."""
    error = KeyError("x")
    error.__context__ = OSError()
    assert causes(error) == ["KeyError: 'x'", "OSError"]


def test_a_cause_that_was_hidden_on_purpose_stays_hidden() -> None:
    """`from None` says that the sentence is enough."""
    error = ConnectionError()
    error.__context__ = OSError("password")
    error.__suppress_context__ = True
    assert causes(error) == ["ConnectionError"]


def test_an_error_that_caused_itself_ends() -> None:
    """Python allows the loop."""
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert causes(one) == ["ValueError: 1", "ValueError: 2"]


def test_a_configuration_error_keeps_its_lines() -> None:
    """One problem, one line."""
    error = ConfigurationError("A: x", "B: y")
    assert error.problems == ("A: x", "B: y")
    assert str(error) == "A: x; B: y"
