"""Names agree with OpenTelemetry's own list."""

import pkgutil
from importlib import import_module

from opentelemetry.semconv import attributes
from opentelemetry.semconv._incubating import attributes as incubating

from mcpfleet.telemetry import names


def test_every_attribute_is_one_of_the_conventions() -> None:
    """A slip in a name would hide the attribute from every dashboard."""
    ours = {value for key, value in vars(names).items() if key.isupper() and "." in value}
    listed = {
        value
        for package in (attributes, incubating)
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
        for key, value in vars(import_module(module.name)).items()
        if key.isupper() and isinstance(value, str)
    }
    assert ours <= listed


def test_spans_are_named_by_operation_and_target() -> None:
    """Few names: the method alone where there is no target."""
    assert names.span_name("tools/call", "search") == "tools/call search"
    assert names.span_name("tools/list") == "tools/list"
