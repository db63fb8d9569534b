"""Settings: how they are read, what is refused and in which words, how they look from outside."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import Bind, Bytes, Names, ProcessSettings, Seconds, Settings, host_and_port, loaded
from mcpfleet.process.settings_table import rows, scaled, unknown_names


class ShopSettings(Settings):
    pool: str = Field(description="The pool's name.")
    bind: Bind = Field(default="127.0.0.1:8000", description="Where clients come in.")
    timeout: Seconds = Field(default=5.0, description="How long a call may take.")
    margin: Seconds = Field(default=0.05, description="What a hop takes off.")
    room: Bytes = Field(default=1024, description="What waits at most.")
    trusted: Names = Field(default=(), description="Whose flag counts.")
    token: SecretStr | None = Field(default=None, description="The secret of the shop.")
    strict: bool = Field(default=False, description="Whether strangers are refused.")


def problems(cls: type[Settings] = ShopSettings) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        cls.load()
    return raised.value.problems


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_POOL", "library")


def test_settings_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field has a variable; lists are written with commas; what is not set has its default."""
    monkeypatch.setenv("MCPFLEET_TIMEOUT", "2.5")
    monkeypatch.setenv("MCPFLEET_TRUSTED", "10.0.0.0/8, fd00::/8,")
    monkeypatch.setenv("MCPFLEET_STRICT", "true")
    settings = ShopSettings.load()
    assert (settings.pool, settings.timeout, settings.strict) == ("library", 2.5, True)
    assert settings.trusted == ("10.0.0.0/8", "fd00::/8")
    assert settings.bind == "127.0.0.1:8000"


def test_arguments_win_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line's options are arguments; lists are given as such."""
    monkeypatch.setenv("MCPFLEET_TIMEOUT", "2.5")
    settings = loaded(lambda: ShopSettings(pool="a", timeout=1, trusted=("b",)))
    assert (settings.pool, settings.timeout, settings.trusted) == ("a", 1, ("b",))


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deployment files leave variables empty where they mean none."""
    monkeypatch.setenv("MCPFLEET_TIMEOUT", "")
    assert ShopSettings.load().timeout == 5.0


def test_settings_do_not_change() -> None:
    """Read once, frozen."""
    settings = ShopSettings.load()
    with pytest.raises(ValidationError):
        settings.timeout = 1  # type: ignore[misc]


def test_all_problems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, named by the variable, without the value."""
    monkeypatch.delenv("MCPFLEET_POOL")
    monkeypatch.setenv("MCPFLEET_TIMEOUT", "-1")
    monkeypatch.setenv("MCPFLEET_ROOM", "lots")
    monkeypatch.setenv("MCPFLEET_BIND", "8000")
    told = problems()
    assert [line.split(":")[0] for line in told] == [
        "MCPFLEET_POOL", "MCPFLEET_BIND", "MCPFLEET_TIMEOUT", "MCPFLEET_ROOM",
    ]  # fmt: skip
    assert told[0] == "MCPFLEET_POOL: must be set"
    assert told[1] == "MCPFLEET_BIND: an address is host:port, with port 0 for any free one"
    assert "lots" not in "".join(told)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-0.1"])
def test_a_duration_is_finite_and_not_negative(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    """A wait has a bound."""
    monkeypatch.setenv("MCPFLEET_TIMEOUT", seconds)
    assert problems()[0].startswith("MCPFLEET_TIMEOUT: ")


def test_a_setting_of_the_wrong_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the text cannot even be parsed, the line names the variable and not the text."""

    class Nested(Settings):
        table: dict[str, int] = Field(default={}, description="Some table.")

    monkeypatch.setenv("MCPFLEET_TABLE", "{secret")
    assert problems(Nested) == ("MCPFLEET_TABLE: has the wrong form",)


def test_a_secret_prints_as_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in its own text, not in the table."""
    monkeypatch.setenv("MCPFLEET_TOKEN", "hush")
    settings = ShopSettings.load()
    assert settings.token is not None
    assert settings.token.get_secret_value() == "hush"
    assert "hush" not in repr(settings)
    assert "hush" not in str(rows(ShopSettings))
    assert next(row.value for row in rows(ShopSettings) if row.name == "MCPFLEET_TOKEN") == "**********"


def test_a_secret_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line feed that ends the file is no part of it."""
    (tmp_path / "token").write_text("hush \n")
    monkeypatch.setenv("MCPFLEET_TOKEN_FILE", str(tmp_path / "token"))
    token = ShopSettings.load().token
    assert token is not None
    assert token.get_secret_value() == "hush "


def test_only_secrets_may_be_in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another setting's file is a name that nobody knows."""
    monkeypatch.setenv("MCPFLEET_BIND_FILE", str(tmp_path))
    assert ShopSettings.load().bind == "127.0.0.1:8000"
    assert [unknown.name for unknown in unknown_names({"MCPFLEET_BIND_FILE": ""}, [ShopSettings])]


def test_a_secrets_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable, the path and the reason."""
    monkeypatch.setenv("MCPFLEET_TOKEN_FILE", str(tmp_path / "none"))
    assert problems() == (f"MCPFLEET_TOKEN_FILE: cannot read {tmp_path}/none: No such file or directory",)
    (tmp_path / "none").write_bytes(b"\xff")
    assert problems() == (f"MCPFLEET_TOKEN_FILE: cannot read {tmp_path}/none: is not text",)


def test_a_secret_stands_in_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two answers to one question are an error, not a rule to remember."""
    monkeypatch.setenv("MCPFLEET_TOKEN", "hush")
    monkeypatch.setenv("MCPFLEET_TOKEN_FILE", str(tmp_path / "token"))
    [line] = problems()
    assert line.startswith("MCPFLEET_TOKEN: set either it or MCPFLEET_TOKEN_FILE")
    assert "hush" not in line


def test_the_table_says_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, value, default, unit, meaning: a row for each setting, in the order of the class."""
    monkeypatch.setenv("MCPFLEET_TIMEOUT", "2.50")
    table = {row.name: row for row in rows(ShopSettings)}
    assert list(table)[:3] == ["MCPFLEET_POOL", "MCPFLEET_BIND", "MCPFLEET_TIMEOUT"]
    timeout, room = table["MCPFLEET_TIMEOUT"], table["MCPFLEET_ROOM"]
    assert (timeout.value, timeout.default, timeout.unit) == ("2.5", "5", "s")
    assert timeout.meaning == "How long a call may take."
    assert (room.default, room.unit) == ("1024", "bytes")
    assert (table["MCPFLEET_POOL"].default, table["MCPFLEET_STRICT"].default) == ("", "false")
    assert (table["MCPFLEET_TOKEN"].value, table["MCPFLEET_TRUSTED"].value) == ("", "")


def test_tests_divide_all_durations() -> None:
    """By one factor; none to below 100 ms, unless its default already is."""
    assert scaled(ShopSettings, 10) == {"MCPFLEET_TIMEOUT": "0.5", "MCPFLEET_MARGIN": "0.05"}
    assert scaled(ShopSettings, 1000)["MCPFLEET_TIMEOUT"] == "0.1"


@pytest.mark.parametrize("factor", [2, 10, 100, 1000])
def test_scaled_settings_are_still_accepted(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """A rule over two durations holds at every factor."""
    for name, value in scaled(ProcessSettings, factor).items():
        monkeypatch.setenv(name, value)
    assert ProcessSettings.load().drain == max(30 / factor, 0.1)


def test_a_name_that_nobody_knows_is_told_with_the_nearest() -> None:
    """A slip of the pen would else be a setting that silently does nothing."""
    environ = {"MCPFLEET_TIMEOT": "1", "MCPFLEET_TOKEN_FILE": "x", "MCPFLEET_ZZZ": "", "PATH": "", "MCPFLEET_POOL": ""}
    told = unknown_names(environ, [ShopSettings, ProcessSettings])
    assert [(unknown.name, unknown.nearest) for unknown in told] == [
        ("MCPFLEET_TIMEOT", "MCPFLEET_TIMEOUT"),
        ("MCPFLEET_ZZZ", None),
    ]
    assert str(told[0]) == "MCPFLEET_TIMEOT: there is no such setting; did you mean MCPFLEET_TIMEOUT?"


@pytest.mark.parametrize(
    ("bind", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (":8000", ("", 8000)),
        ("[::1]:8000", ("::1", 8000)),
        ("x:65535", ("x", 65535)),
    ],
)
def test_addresses_to_listen_on(bind: str, address: tuple[str, int]) -> None:
    """Host and port, in both families."""
    assert host_and_port(bind) == address


@pytest.mark.parametrize("bind", ["", "8000", "host", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_no_address(bind: str) -> None:
    """The error says the form."""
    with pytest.raises(ValueError, match="host:port"):
        host_and_port(bind)


def test_the_nats_address_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints in the table and in logs; the line that refuses it does not repeat it."""
    monkeypatch.setenv("MCPFLEET_NATS_URL", "nats://edge:hush@nats:4222")
    [line] = problems(ProcessSettings)
    assert line.startswith("MCPFLEET_NATS_URL: ")
    assert "MCPFLEET_NATS_PASSWORD" in line
    assert "hush" not in line


@pytest.mark.parametrize("url", ["javascript:alert(1)", "jaeger:16686", "http://me:hush@jaeger", "http://jaeger/?a"])
def test_jaegers_address_is_one_for_links(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """It is shown in a page, so it holds no password and runs no script."""
    monkeypatch.setenv("MCPFLEET_JAEGER_URL", url)
    [line] = problems(ProcessSettings)
    assert line.startswith("MCPFLEET_JAEGER_URL: ")
    assert "hush" not in line


def test_jaegers_address_is_taken_without_its_last_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_JAEGER_URL", "https://jaeger.example/ui/")
    assert ProcessSettings.load().jaeger_url == "https://jaeger.example/ui"


def test_the_last_deadline_is_not_before_the_drains_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule over two settings names both."""
    monkeypatch.setenv("MCPFLEET_LAST_DEADLINE", "10")
    assert problems(ProcessSettings) == ("MCPFLEET_LAST_DEADLINE: must not be before the end of MCPFLEET_DRAIN",)


def test_the_real_defaults_of_every_process() -> None:
    """The documentation for operators agrees with the code."""
    assert {
        row.name.removeprefix("MCPFLEET_"): f"{row.default} {row.unit}".strip() for row in rows(ProcessSettings)
    } == {
        "NATS_URL": "nats://127.0.0.1:4222",
        "NATS_USER": "",
        "NATS_PASSWORD": "",
        "NATS_CA": "",
        "ALLOW_OPEN_NATS": "false",
        "SUBJECT_PREFIX": "mcpfleet",
        "ADMIN_BIND": "127.0.0.1:0",
        "LOG_LEVEL": "info",
        "LOG_FORMAT": "json",
        "DRAIN": "30 s",
        "LAST_DEADLINE": "60 s",
        "BUS_QUESTION_EVERY": "2 s",
        "BUS_DEAD_AFTER": "2 s",
        "BUS_RECONNECT_JITTER": "1 s",
        "BUS_CONNECT_TIMEOUT": "2 s",
        "BUS_START_WITHIN": "2 s",
        "BUS_CLOCK_TOLERANCE": "1 s",
        "BUS_HOP_MARGIN": "0.05 s",
        "BUS_PENDING_BYTES": "16777216 bytes",
        "BUS_MAX_PAYLOAD": "8388608 bytes",
        "CONSOLE": "false",
        "CONSOLE_HOSTS": "",
        "JAEGER_URL": "",
        "OBSERVER": "",
    }


def test_every_setting_is_documented() -> None:
    """`mcpfleet settings` is the reference: no row without a meaning."""
    assert all(row.meaning.endswith(".") for row in rows(ProcessSettings))
