# SPDX-License-Identifier: Apache-2.0
"""Queue settings: what is refused, how, and what another declaration may say."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.observing import assert_counts, listing, put_each

from shmbroker import settings
from shmbroker._core.journal import topology_lock
from shmbroker._setting_kinds import Consumers, Factor, Name, Seats
from shmbroker.exceptions import PreconditionFailed, Timeout

if TYPE_CHECKING:
    import shmbroker
    from shmbroker._core.queue import CoreQueue

NOT_A_COUNT = [0, -2, 1.5, "x", True, None, [], 2**80]


@pytest.mark.parametrize("name", ["ring_size", "max_delivery_attempts"])
@pytest.mark.parametrize("value", NOT_A_COUNT)
def test_a_bad_count_is_refused(connection: shmbroker.Connection, name: str, value: object) -> None:
    """A count is -1 or at least 1; the error names setting, value, what is allowed."""
    with pytest.raises(ValueError, match=name) as refusal:
        connection.queue("q", **{name: value})
    assert repr(value) in str(refusal.value)
    assert "-1" in str(refusal.value)
    assert f"an integer from 1 to {(1 << 56) - 1} is allowed" in str(refusal.value)


@pytest.mark.parametrize("value", [0, -2, 1.5, "x", "12X", "", "-5", 2**80])
def test_a_bad_size_is_refused(connection: shmbroker.Connection, value: object) -> None:
    """A size is -1, a number of bytes, or a string such as "64K"."""
    with pytest.raises(ValueError, match="max_bytes") as refusal:
        connection.queue("q", max_bytes=value)
    assert repr(value) in str(refusal.value)


def test_a_size_beyond_all_counts_is_refused(connection: shmbroker.Connection) -> None:
    """In words as in digits."""
    with pytest.raises(ValueError, match="max_bytes"):
        connection.queue("q", max_bytes=f"{2**50}G")


@pytest.mark.parametrize("value", ["", "BLOCK", "drop_head", "nonsense", None, 1])
def test_a_bad_overflow_is_refused(connection: shmbroker.Connection, value: object) -> None:
    """An overflow is one of the known words, and the error lists them."""
    with pytest.raises(ValueError, match="overflow") as refusal:
        connection.queue("q", overflow=value)
    assert repr(value) in str(refusal.value)
    for word in ("block", "drop", "drop-head"):
        assert word in str(refusal.value)


def test_an_unknown_setting_is_refused(connection: shmbroker.Connection) -> None:
    """A setting nobody knows is an error, not ignored."""
    with pytest.raises((TypeError, ValueError), match="ring_sice"):
        connection.queue("q", ring_sice=3)
    with pytest.raises((TypeError, ValueError), match="ring_sice"):
        connection.queue("q").configure(ring_sice=3)


def test_a_refused_declaration_leaves_no_queue(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A declaration that is refused has no effect."""
    with pytest.raises(ValueError, match="ring_size"):
        connection.queue("q", ring_size=0)
    assert broker.statistics().queue_count == 0


def test_sizes_may_be_written_with_a_unit(connection: shmbroker.Connection) -> None:
    """A size of "1K" is 1024 bytes: it takes as much and no more."""
    queue = connection.queue("q", max_bytes="1K", overflow="drop")
    for _ in range(5):
        queue.put(b"x" * 256)
    assert_counts(queue, ready=4, bytes=1024, dropped=1)


def test_only_given_settings_are_compared(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A second declaration must agree in what it says; what it omits it leaves."""
    queue = connection.queue("q", ring_size=3)
    with broker.connect() as other:
        other.queue("q")
        other.queue("q", ring_size=3)
        other.queue("q", passive=True)
        with pytest.raises(PreconditionFailed) as refusal:
            other.queue("q", ring_size=4)
        assert refusal.value.code == 406
        assert "PRECONDITION_FAILED" in str(refusal.value)
        assert "q" in str(refusal.value)
        with pytest.raises(PreconditionFailed):
            other.queue("q", ring_size=3, max_length=10)
    put_each(queue, "ABCD")
    assert listing(queue) == list("BCD")


@pytest.mark.parametrize(("setting", "seconds", "stored"), [("message_ttl", 0.1 + 0.2, 0.3), ("expires", 2 / 3, 0.667)])
def test_a_time_is_compared_as_it_is_stored(
    connection: shmbroker.Connection, setting: str, seconds: float, stored: float
) -> None:
    """In whole milliseconds. So a declaration with a time between two milliseconds can be repeated."""
    given: dict[str, Any] = {setting: seconds}
    queue = connection.queue("q", **given)
    assert getattr(queue.settings, setting) == stored
    assert connection.queue("q", **given) is queue
    assert connection.queue("q", passive=True, **given) is queue
    queue.configure(**given)
    assert connection.queue("q", **{setting: stored}) is queue  # type: ignore[arg-type]
    channel, arguments = connection.channel(), {f"x-{setting.replace('_', '-')}": round(stored * 1000)}
    channel.queue_declare("q", arguments=arguments)
    with pytest.raises(PreconditionFailed):
        connection.queue("q", **{setting: stored + 0.001})  # type: ignore[arg-type]


def test_configure_changes_only_what_is_given(connection: shmbroker.Connection) -> None:
    """An omitted setting stays as it was."""
    queue = connection.queue("q", ring_size=2, max_length=50)
    queue.configure(max_length=60)
    put_each(queue, "ABC")
    assert listing(queue) == ["B", "C"]
    connection.queue("q", ring_size=2, max_length=60)


@pytest.mark.parametrize("change", ["configure", "pause", "resume"])
def test_no_other_change_comes_between_reading_and_storing(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A change stores all settings again. It has the topology lock from reading on, so it undoes no other change."""
    queue, found = connection.queue("q"), []
    core, read = core_of(queue), type(core_of(queue)).settings

    def take_the_lock() -> None:
        try:
            with topology_lock(core.connection, 1, "another change"):
                found.append("free")
        except Timeout:
            found.append("held")

    def settings_beside_another(self: CoreQueue) -> object:
        another = threading.Thread(target=take_the_lock)
        another.start()
        another.join()
        return read(self)

    monkeypatch.setattr(type(core), "settings", settings_beside_another)
    getattr(queue, change)(**({"max_length": 10} if change == "configure" else {}))
    assert found == ["held"]


def test_what_was_configured_counts_for_the_next_declaration(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A declaration is compared with the settings of now."""
    connection.queue("q", ring_size=2).configure(ring_size=5)
    with broker.connect() as other:
        other.queue("q", ring_size=5)
        with pytest.raises(PreconditionFailed):
            other.queue("q", ring_size=2)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        (2**40, 2**40),
        ("1", 1),
        ("10B", 10),
        ("1k", 1024),
        (" 64 K ", 65_536),
        ("2kB", 2048),
        ("3KiB", 3072),
        ("5M", 5 << 20),
        ("1g", 1 << 30),
        ("1Gib", 1 << 30),
    ],
)
def test_a_size(text: object, size: int) -> None:
    """A size is a number of bytes, or has a unit in upper or lower case, with or without B."""
    assert settings.parse_size(text) == size


@pytest.mark.parametrize(
    "value", [0, -1, True, 1.5, None, b"1K", "", "K", "-1K", "1.5K", "1T", "1K2", "0", "0K", "1K\n2"]
)
def test_what_is_no_size(value: object) -> None:
    """The error names what it is of, and what is allowed."""
    with pytest.raises(ValueError, match="a positive integer, or a string such as '256M', is allowed") as refusal:
        settings.parse_size(value)
    assert str(refusal.value).startswith(f"memory={value!r}: ")
    with pytest.raises(ValueError, match=r"^room="):
        settings.parse_size(value, "room")


def test_all_settings_that_are_allowed() -> None:
    """The checked settings are those that were given, a size as bytes and times as floats."""
    assert settings.validate({}) == {}
    given = {
        "ring_size": 1,
        "max_length": -1,
        "max_bytes": "2K",
        "overflow": "drop-head",
        "message_ttl": 0,
        "expires": 0.001,
        "durable": True,
        "exclusive": False,
        "auto_delete": True,
        "single_active_consumer": False,
    }
    checked = settings.validate(given)
    assert checked == given | {"max_bytes": 2048, "message_ttl": 0.0}
    assert type(checked["message_ttl"]) is float
    assert settings.validate({"message_ttl": None, "expires": None}) == {"message_ttl": None, "expires": None}
    most = {"ring_size": (1 << 56) - 1, "max_bytes": (1 << 56) - 1, "message_ttl": 315_360_000, "expires": 315_360_000}
    assert settings.validate(most) == most


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ring_size", 1 << 56, f"-1 (no limit) or an integer from 1 to {(1 << 56) - 1} is allowed"),
        ("max_length", -2, f"-1 (no limit) or an integer from 0 to {(1 << 56) - 1} is allowed"),
        ("max_bytes", -2, f"-1 (no limit) or an integer from 0 to {(1 << 56) - 1} is allowed"),
        ("overflow", "DROP", "one of block, drop, drop-head, reject-publish, reject-publish-dlx, page is allowed"),
        ("message_ttl", -0.001, "0 to 315360000 seconds, or None, are allowed"),
        ("message_ttl", 315_360_000.001, "0 to 315360000 seconds, or None, are allowed"),
        ("message_ttl", "1", "0 to 315360000 seconds, or None, are allowed"),
        ("message_ttl", True, "0 to 315360000 seconds, or None, are allowed"),
        ("message_ttl", float("nan"), "0 to 315360000 seconds, or None, are allowed"),
        ("expires", 0, "0.001 to 315360000 seconds, or None, are allowed"),
        ("expires", False, "0.001 to 315360000 seconds, or None, are allowed"),
        ("durable", 1, "True or False is allowed"),
        ("exclusive", None, "True or False is allowed"),
        ("auto_delete", "yes", "True or False is allowed"),
        ("single_active_consumer", 0, "True or False is allowed"),
    ],
)
def test_a_setting_that_is_not_allowed(name: str, value: object, allowed: str) -> None:
    """The error names the setting, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"allowed$") as refusal:
        settings.validate({"durable": True, name: value})
    assert str(refusal.value) == f"{name}={value!r}: {allowed}"


def test_a_setting_that_there_is_not() -> None:
    """The error names all that there are."""
    with pytest.raises(
        TypeError, match="no queue setting 'size'; there are ring_size, max_length, max_bytes, overflow"
    ):
        settings.validate({"ring_size": 1, "size": 1})


def test_the_arguments_of_a_declaration() -> None:
    """Each x- argument is a setting, times in milliseconds; what nobody knows is ignored."""
    arguments = {
        "x-ring-size": 5,
        "x-max-length": -1,
        "x-max-length-bytes": 7,
        "x-overflow": "drop",
        "x-message-ttl": 0,
        "x-expires": 1,
        "x-single-active-consumer": True,
        "x-unknown": "?",
    }
    assert settings.from_arguments("q", arguments) == {
        "ring_size": 5,
        "max_length": -1,
        "max_bytes": 7,
        "overflow": "drop",
        "message_ttl": 0.0,
        "expires": 0.001,
        "single_active_consumer": True,
    }
    most: dict[str, Any] = {"x-message-ttl": 315_360_000_000, "x-max-length": (1 << 56) - 1}
    assert settings.from_arguments("q", most) == {"message_ttl": 315_360_000.0, "max_length": (1 << 56) - 1}
    assert settings.from_arguments("q", {}) == {}


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("x-overflow", "reject", '{invalid_overflow,<<"reject">>}'),
        ("x-overflow", 1, '{invalid_overflow,<<"1">>}'),
        ("x-single-active-consumer", 1, "{unacceptable_type,long}"),
        ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
        ("x-ring-size", "5", '"expected integer, got longstr"'),
        ("x-ring-size", True, '"expected integer, got bool"'),
        ("x-ring-size", 5.0, '"expected integer, got double"'),
        ("x-ring-size", None, '"expected integer, got void"'),
        ("x-ring-size", b"5", '"expected integer, got binary"'),
        ("x-ring-size", {}, '"expected integer, got table"'),
        ("x-ring-size", [], '"expected integer, got array"'),
        ("x-ring-size", (), '"expected integer, got tuple"'),
        ("x-max-length", -2, "{value_negative,-2}"),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-ring-size", 0, "{value_zero,0}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-max-length", 1 << 56, "{value_too_large,72057594037927936}"),
        ("x-message-ttl", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-expires", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-max-priority", 256, "{value_too_large,256}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-non-destructive", 1, "{unacceptable_type,long}"),
    ],
)
def test_an_argument_that_is_not_allowed(argument: str, value: object, why: str) -> None:
    """It is 406, and the text is RabbitMQ's."""
    with pytest.raises(PreconditionFailed) as refusal:
        settings.from_arguments("jobs", {"x-unknown": 1, argument: value})
    assert refusal.value.code == 406
    text = f"PRECONDITION_FAILED - invalid arg '{argument}' for queue 'jobs' in vhost '/': {why}"
    assert str(refusal.value).endswith(text)


@pytest.mark.parametrize(
    ("setting", "received", "current", "words"),
    [
        ("durable", True, False, "arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        (
            "exclusive",
            False,
            True,
            "arg 'exclusive' for queue 'q' in vhost '/': received 'false' but current is 'true'",
        ),
        ("ring_size", 5, -1, "'x-ring-size' for queue 'q' in vhost '/': received '5' but current is none"),
        ("max_length", -1, 1, "'x-max-length' for queue 'q' in vhost '/': received none but current is '1'"),
        (
            "overflow",
            "drop",
            "block",
            "'x-overflow' for queue 'q' in vhost '/': received 'drop' but current is 'block'",
        ),
        ("message_ttl", 1.5, None, "'x-message-ttl' for queue 'q' in vhost '/': received '1500' but current is none"),
        ("expires", 2, 0.001, "'x-expires' for queue 'q' in vhost '/': received '2000' but current is '1'"),
        (
            "single_active_consumer",
            True,
            False,
            "'x-single-active-consumer' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ),
    ],
)
def test_a_declaration_that_differs(setting: str, received: object, current: object, words: str) -> None:
    """The error names the argument as the caller gives it, times in milliseconds, and both values."""
    error = settings.inequivalent("q", setting, received, current)
    assert error.code == 406
    assert "PRECONDITION_FAILED - inequivalent arg" in str(error)
    assert str(error).endswith(words)


@pytest.mark.parametrize("value", [None, "a", "\u20ac" * 85, "x" * 255])
def test_a_name_that_is_allowed(value: str | None) -> None:
    """A name has up to 255 bytes of UTF-8; `None` is no name. Keywords, arguments and errors agree."""
    kind = Name()
    assert kind.check("parking", value) == value
    assert kind.from_option(value) == value
    if value is not None:
        assert kind.from_argument("q", "x-parking", value) == value
    assert kind.described(value) == ("none" if value is None else f"'{value}'")


@pytest.mark.parametrize(("value", "stored"), [(1, 1.0), (1.5, 1.5), (2.00049, 2.0), (1000, 1000.0)])
def test_a_factor_that_is_allowed(value: float, stored: float) -> None:
    """It is kept in thousandths."""
    kind = Factor(1, 1000)
    assert kind.check("growth", value) == stored
    assert kind.from_argument("q", "x-growth", value) == stored
    assert kind.from_core(kind.to_core(stored)) == stored


@pytest.mark.parametrize("value", [0.999, 0, -1, 1000.001, "2", None, True, float("nan"), float("inf")])
def test_a_factor_that_is_not_allowed(value: object) -> None:
    """The error names setting, value and rule; that of an argument is 406."""
    with pytest.raises(ValueError, match="a number from 1 to 1000 is allowed") as refusal:
        Factor(1, 1000).check("growth", value)
    assert str(refusal.value).startswith(f"growth={value!r}: ")
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-growth' for queue 'q'") as failure:
        Factor(1, 1000).from_argument("q", "x-growth", value)
    assert failure.value.code == 406


def test_a_factor_below_one_in_memory_is_one() -> None:
    """A queue that tests of the core made has 0."""
    assert Factor(1, 1000).from_core(0) == 1.0


def test_a_name_that_may_be_empty() -> None:
    """As that of the default exchange."""
    kind = Name(empty=True)
    assert kind.check("parking", "") == ""
    assert kind.allowed == "0 to 255 bytes of UTF-8 without NUL"
    with pytest.raises(ValueError, match="0 to 255 bytes of UTF-8 without NUL, or None, are allowed"):
        kind.check("parking", "a\0b")


def test_dead_letter_settings_go_together(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A key needs an exchange, and a queue is not its own dead-letter queue."""
    with pytest.raises(ValueError, match="dead_letter_routing_key='x': it needs a dead_letter_exchange"):
        connection.queue("q", dead_letter_routing_key="x")
    text = "dead_letter_exchange='', dead_letter_routing_key='q': a queue cannot be its own dead-letter queue"
    with pytest.raises(ValueError, match=text):
        connection.queue("q", dead_letter_exchange="", dead_letter_routing_key="q")
    with pytest.raises(PreconditionFailed, match=f"queue 'q' in vhost '/': {text}"):
        channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    assert connection.queue_names() == []


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 256, "\u20ac" * 86, "\ud800", 1, b"a"])
def test_a_name_that_is_not_allowed(value: object) -> None:
    """The error names setting, value and rule; that of an argument is 406."""
    with pytest.raises(ValueError, match="1 to 255 bytes of UTF-8 without NUL, or None, are allowed") as refusal:
        Name().check("parking", value)
    assert str(refusal.value).startswith(f"parking={value!r}: ")
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-parking' for queue 'q'") as failure:
        Name().from_argument("q", "x-parking", value)
    assert failure.value.code == 406


def test_a_number_of_seats() -> None:
    """-1 is no limit, 0 is none; the core has the number plus one, so that 0 of a new structure is no limit."""
    kind = Seats()
    for value, number in (-1, 0), (0, 1), (7, 8):
        assert kind.check("seats", value) == value
        assert (kind.to_core(value), kind.from_core(number)) == (number, value)
        assert kind.from_argument("q", "x-seats", value) == value
    assert kind.from_core(-1) == -1
    assert [kind.described(value) for value in (-1, 0, 7)] == ["none", "'0'", "'7'"]
    for value in -2, 1.0, True, "1", None, 1 << 56:
        with pytest.raises(ValueError, match=re.escape(f"seats={value!r}: -1 (no limit) or an integer from 0 to ")):
            kind.check("seats", value)
        with pytest.raises(PreconditionFailed, match="x-seats"):
            kind.from_argument("q", "x-seats", value)


def test_a_number_of_consumers() -> None:
    """It may be 0; what the core has below that means 0."""
    kind = Consumers()
    assert [kind.check("consumers", value) for value in (0, 7)] == [0, 7]
    assert [kind.from_argument("q", "x-consumers", value) for value in (0, 7)] == [0, 7]
    assert [kind.from_core(number) for number in (-1, 0, 7)] == [0, 0, 7]
    for value in -1, 1.0, True, "1", None, 1 << 56:
        with pytest.raises(ValueError, match=re.escape(f"consumers={value!r}: an integer from 0 to ")):
            kind.check("consumers", value)
        with pytest.raises(PreconditionFailed, match="x-consumers"):
            kind.from_argument("q", "x-consumers", value)
