# SPDX-License-Identifier: Apache-2.0
"""The topology: what is refused and how, what follows from a change, and the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shmbroker._topology import changes, records
from shmbroker._topology.binding import Binding, ToExchange, ToQueue
from shmbroker._topology.exchange import Exchange, check_publish
from shmbroker._topology.records import Bound, Declared, Deleted, QueueGone, Unbound
from shmbroker._topology.state import Topology
from shmbroker.exceptions import AccessRefused, CorruptSegment, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker.exceptions import BrokerError

Q1, Q2 = ToQueue("q1", 1), ToQueue("q2", 2)
DEFAULT = "ACCESS_REFUSED - operation not permitted on the default exchange"


@pytest.fixture
def topology() -> Topology:
    """A topology with nothing declared."""
    return Topology()


def declare(topology: Topology, name: str, kind: str = "direct", **options: object) -> None:
    """Declare an exchange."""
    topology.replay(changes.declare(topology, name, kind, **options))


def bind(
    topology: Topology, source: str, destination: ToQueue | ToExchange, key: str = "", **arguments: object
) -> None:
    """Bind."""
    topology.replay(changes.bind(topology, source, destination, key, arguments))


def unbind(
    topology: Topology, source: str, destination: ToQueue | ToExchange, key: str = "", **arguments: object
) -> None:
    """Unbind."""
    topology.replay(changes.unbind(topology, source, destination, key, arguments))


def declared(topology: Topology) -> set[str]:
    """Return the names of the exchanges that were declared."""
    return {one.name for one in topology.exchanges.values() if not one.predeclared}


def refusal(of: type[BrokerError], function: Callable[[], object]) -> tuple[int, str]:
    """Return code and text of the error."""
    with pytest.raises(of) as error:
        function()
    assert error.type is of
    return error.value.code, error.value.text


def test_some_exchanges_are_there_from_the_beginning(topology: Topology) -> None:
    """They are durable, and their types are RabbitMQ's."""
    assert {name: one.type for name, one in topology.exchanges.items()} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.topic": "topic",
    }
    assert all(one.durable and one.predeclared for one in topology.exchanges.values())


def test_a_declared_exchange_is_as_it_was_declared(topology: Topology) -> None:
    """All that was given is there, with its types."""
    arguments = {"alternate-exchange": "other", "nested": [1, 1.5, {"a": None}]}
    declare(topology, "x", "topic", durable=True, auto_delete=True, internal=True, arguments=arguments)
    found = topology.exchange("x")
    assert found == Exchange("x", "topic", durable=True, auto_delete=True, internal=True, arguments=arguments)
    assert found.alternate == "other"
    assert changes.require(topology, "x") is found


def test_declaring_again_changes_nothing(topology: Topology) -> None:
    """The same declaration needs no record; unknown arguments are not compared."""
    declare(topology, "x", arguments={"alternate-exchange": "a"})
    again = {"alternate-exchange": "a", "foo": 1}
    assert changes.declare(topology, "x", arguments=again) == b""


@pytest.mark.parametrize(
    ("current", "wanted", "text"),
    [
        ({}, {"kind": "fanout"}, "inequivalent arg 'type' {}: received 'fanout' but current is 'direct'"),
        ({}, {"durable": True}, "inequivalent arg 'durable' {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, {}, "inequivalent arg 'auto_delete' {}: received 'false' but current is 'true'"),
        ({}, {"internal": True}, "inequivalent arg 'internal' {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "a"}},
            {},
            "inequivalent arg 'alternate-exchange' {}: received none but current is the value 'a' of type 'longstr'",
        ),
        (
            {},
            {"arguments": {"alternate-exchange": "a"}},
            "inequivalent arg 'alternate-exchange' {}: received the value 'a' of type 'longstr' but current is none",
        ),
        (
            {"arguments": {"alternate-exchange": "a"}},
            {"arguments": {"alternate-exchange": "b"}},
            "inequivalent arg 'alternate-exchange' {}: received 'b' but current is 'a'",
        ),
    ],
)
def test_declaring_it_otherwise_is_refused(
    topology: Topology, current: dict[str, Any], wanted: dict[str, Any], text: str
) -> None:
    """The error names what differs, and both values."""
    declare(topology, "x", **current)
    expected = "PRECONDITION_FAILED - " + text.format("for exchange 'x' in vhost '/'")
    assert refusal(PreconditionFailed, lambda: changes.declare(topology, "x", **wanted)) == (406, expected)


@pytest.mark.parametrize(
    ("name", "options", "of", "text"),
    [
        ("x", {"kind": "zz"}, PreconditionFailed, "PRECONDITION_FAILED - unknown exchange type 'zz'"),
        ("", {}, AccessRefused, DEFAULT),
        (
            "amq.z",
            {},
            AccessRefused,
            "ACCESS_REFUSED - exchange name 'amq.z' contains reserved prefix 'amq.*'",
        ),
        (
            "x",
            {"arguments": {"alternate-exchange": 5}},
            PreconditionFailed,
            "PRECONDITION_FAILED - invalid type 'byte' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
        ),
    ],
)
def test_what_cannot_be_declared(
    topology: Topology, name: str, options: dict[str, Any], of: type[BrokerError], text: str
) -> None:
    """Codes and texts are RabbitMQ's."""
    assert refusal(of, lambda: changes.declare(topology, name, **options)) == (of.default_code, text)


def test_the_brokers_own_exchanges_can_be_declared_as_they_are(topology: Topology) -> None:
    """The reserved prefix is only refused for what is new."""
    assert changes.declare(topology, "amq.topic", "topic", durable=True) == b""


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "a\0b", "\ud800"])
def test_impossible_names(topology: Topology, name: str) -> None:
    """A name is up to 255 bytes of UTF-8 without NUL; the error names it."""
    for function in (changes.declare, changes.delete, changes.require):
        with pytest.raises(ValueError, match="exchange name") as error:
            function(topology, name)
        assert repr(name) in str(error.value)


def test_names_and_keys_of_255_bytes(topology: Topology) -> None:
    """The longest ones go through a record."""
    name, key = "é" * 127 + "x", "k" * 255
    declare(topology, name)
    bind(topology, name, ToQueue(name, 2**64 - 1), key)
    assert list(topology.bindings_from(name)) == [Binding(name, ToQueue(name, 2**64 - 1), key)]
    with pytest.raises(ValueError, match="routing key"):
        bind(topology, name, Q1, key + "k")


def test_passive_declaration(topology: Topology) -> None:
    """What is missing is 404, the default exchange 403."""
    text = "NOT_FOUND - no exchange 'x' in vhost '/'"
    assert refusal(NotFound, lambda: changes.require(topology, "x")) == (404, text)
    assert refusal(AccessRefused, lambda: changes.require(topology, "")) == (403, DEFAULT)


def test_what_cannot_be_deleted(topology: Topology) -> None:
    """The broker's own, and what is in use if it must not be; a missing one is deleted already."""
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    assert refusal(AccessRefused, lambda: changes.delete(topology, "amq.direct")) == (403, text)
    assert refusal(AccessRefused, lambda: changes.delete(topology, "")) == (403, DEFAULT)
    assert changes.delete(topology, "x", if_unused=True) == b""
    declare(topology, "x")
    bind(topology, "x", Q1)
    text = "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    assert refusal(PreconditionFailed, lambda: changes.delete(topology, "x", if_unused=True)) == (406, text)
    assert changes.delete(topology, "x")


def test_a_destination_is_not_in_use(topology: Topology) -> None:
    """Only bindings from an exchange count."""
    declare(topology, "x")
    bind(topology, "amq.fanout", ToExchange("x"))
    topology.replay(changes.delete(topology, "x", if_unused=True))
    assert not topology.bindings_from("amq.fanout")


@pytest.mark.parametrize("change", [changes.bind, changes.unbind])
def test_nothing_is_bound_to_the_default_exchange(topology: Topology, change: Callable[..., bytes]) -> None:
    """Neither from it nor to it."""
    assert refusal(AccessRefused, lambda: change(topology, "", Q1)) == (403, DEFAULT)
    assert refusal(AccessRefused, lambda: change(topology, "amq.direct", ToExchange(""))) == (403, DEFAULT)


def test_what_cannot_be_bound_because_it_is_missing(topology: Topology) -> None:
    """The source is looked for first; what is missing can be unbound."""
    for source, to, name in (("x", Q1, "x"), ("amq.direct", ToExchange("y"), "y"), ("x", ToExchange("y"), "x")):
        text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
        assert refusal(NotFound, lambda a=source, b=to: changes.bind(topology, a, b)) == (404, text)  # type: ignore[misc]
        assert changes.unbind(topology, source, to) == b""
    assert changes.unbind(topology, "amq.direct", Q1) == b""


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "text"),
    [
        ("topic", "#.a.#.#", {}, "Topic binding key '#.a.#.#' uses 3 '#' wildcards, at most 2 are allowed"),
        (
            "headers",
            "",
            {"x-match": "zz"},
            'Invalid x-match field value <<"zz">>; expected all, any, all-with-x, or any-with-x',
        ),
        ("headers", "", {"x-match": 5}, "Invalid x-match field type byte (value 5); expected longstr"),
        ("headers", "", {"x-match": True}, "Invalid x-match field type bool (value true); expected longstr"),
    ],
)
def test_bindings_that_no_exchange_of_a_type_can_have(
    topology: Topology, kind: str, key: str, arguments: dict[str, Any], text: str
) -> None:
    """They are refused where they have a meaning, and accepted elsewhere."""
    expected = (406, f"PRECONDITION_FAILED - {text}")
    assert refusal(PreconditionFailed, lambda: changes.bind(topology, f"amq.{kind}", Q1, key, arguments)) == expected
    for other in {"topic", "headers", "direct", "fanout"} - {kind}:
        assert changes.bind(topology, f"amq.{other}", Q1, key, arguments)


def test_publishing_to_an_internal_exchange(topology: Topology) -> None:
    """It is refused; others are open to everybody."""
    declare(topology, "x", internal=True)
    text = "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'"
    assert refusal(AccessRefused, lambda: check_publish(topology.exchange("x"))) == (403, text)
    check_publish(topology.exchange(""))


def test_bindings_are_a_set(topology: Topology) -> None:
    """The same binding counts once; another key, other arguments or another incarnation is another binding."""
    bind(topology, "amq.direct", Q1, "k", a=1, b=2)
    assert changes.bind(topology, "amq.direct", Q1, "k", {"b": 2, "a": 1}) == b""
    bind(topology, "amq.direct", Q1, "k")
    bind(topology, "amq.direct", Q1, "l")
    bind(topology, "amq.direct", Q1, "k", a=True, b=2)
    bind(topology, "amq.direct", ToQueue("q1", 9), "k")
    assert len(topology.bindings_from("amq.direct")) == 5
    assert len(topology.bindings_to(Q1)) == 4
    unbind(topology, "amq.direct", Q1, "k", b=2, a=1)
    assert [one.arguments for one in topology.bindings_to(Q1)] == [{}, {}, {"a": True, "b": 2}]


def test_a_deleted_exchange_takes_its_bindings_along(topology: Topology) -> None:
    """Those from it, those to it, and one to itself."""
    declare(topology, "x")
    bind(topology, "x", Q1)
    bind(topology, "x", ToExchange("x"))
    bind(topology, "amq.fanout", ToExchange("x"))
    bind(topology, "amq.fanout", Q1)
    topology.replay(changes.delete(topology, "x"))
    assert list(topology.bindings_to(Q1)) == [Binding("amq.fanout", Q1)]
    assert list(topology.bindings_from("amq.fanout")) == [Binding("amq.fanout", Q1)]
    declare(topology, "x")
    assert not topology.bindings_from("x")
    assert not topology.bindings_to(ToExchange("x"))


def test_an_auto_delete_exchange_goes_with_its_last_binding(topology: Topology) -> None:
    """Not before it had one, and not while it has another."""
    declare(topology, "x", auto_delete=True)
    topology.replay(records.encode(Unbound(Binding("x", Q1))))
    assert declared(topology) == {"x"}
    bind(topology, "x", Q1)
    bind(topology, "x", Q2)
    unbind(topology, "x", Q1)
    assert declared(topology) == {"x"}
    unbind(topology, "x", Q2)
    assert declared(topology) == set()


def test_a_queue_that_is_gone_takes_its_bindings_along(topology: Topology) -> None:
    """Those of that incarnation, and an auto-delete exchange with its last one."""
    declare(topology, "x", auto_delete=True)
    bind(topology, "x", Q1)
    bind(topology, "amq.direct", Q1, "a")
    bind(topology, "amq.direct", ToQueue("q1", 2), "a")
    topology.replay(changes.queue_gone(topology, Q1))
    assert declared(topology) == set()
    assert list(topology.bindings_from("amq.direct")) == [Binding("amq.direct", ToQueue("q1", 2), "a")]
    assert changes.queue_gone(topology, Q1) == b""


def test_auto_delete_cascades(topology: Topology) -> None:
    """An exchange that goes takes along the binding that led to it, which may be somebody's last: however long."""
    length = 3000
    for number in range(length):
        declare(topology, f"x{number}", auto_delete=True)
    for number in range(length - 1):
        bind(topology, f"x{number}", ToExchange(f"x{number + 1}"))
    bind(topology, f"x{length - 1}", Q1)
    unbind(topology, f"x{length - 1}", Q1)
    assert declared(topology) == set()
    assert topology._size == 0  # noqa: SLF001


def test_a_destination_stays_when_nothing_leads_to_it_any_more(topology: Topology) -> None:
    """Only the last binding from an exchange takes it along."""
    declare(topology, "x", auto_delete=True)
    bind(topology, "amq.fanout", ToExchange("x"))
    unbind(topology, "amq.fanout", ToExchange("x"))
    assert declared(topology) == {"x"}


@pytest.mark.parametrize(
    "change",
    [
        Bound(Binding("missing", Q1)),
        Bound(Binding("amq.direct", ToExchange("missing"))),
        Bound(Binding("", Q1)),
        Bound(Binding("amq.direct", ToExchange(""))),
        Unbound(Binding("missing", Q1)),
        Deleted("missing"),
        Deleted("amq.direct"),
        Deleted(""),
        Declared(Exchange("amq.direct", "fanout")),
        QueueGone(Q1),
    ],
)
def test_records_of_what_cannot_be_change_nothing(topology: Topology, change: records.Change) -> None:
    """Whatever was appended, every process makes the same of it."""
    topology.replay(records.encode(change))
    assert topology.exchanges == Topology().exchanges
    assert topology.snapshot() == b""
    assert topology._size == 0  # noqa: SLF001


def test_a_snapshot_gives_the_same_table(topology: Topology) -> None:
    """Exchanges, bindings, their order, and it is as long as was foretold."""
    declare(topology, "x", "headers", arguments={"alternate-exchange": "gone"})
    declare(topology, "y", auto_delete=True)
    declare(topology, "z", internal=True)
    bind(topology, "x", Q2, "k", a=1.5)
    bind(topology, "x", ToExchange("y"))
    bind(topology, "x", Q1, "k", a=[None])
    bind(topology, "amq.topic", Q1, "#.a")
    unbind(topology, "x", ToExchange("y"))
    topology.replay(changes.delete(topology, "z"))
    data = topology.snapshot()
    assert len(data) == topology._size  # noqa: SLF001
    copy = Topology()
    copy.replay(data)
    assert copy.exchanges == topology.exchanges
    for name in topology.exchanges:
        assert list(copy.bindings_from(name)) == list(topology.bindings_from(name))
    assert copy._size == len(data)  # noqa: SLF001
    assert copy.snapshot() == data


def test_when_compaction_is_worth_it(topology: Topology) -> None:
    """When the journal is twice what is needed, and 64 KiB."""
    assert not topology.worth_compacting(64 * 1024)
    assert topology.worth_compacting(64 * 1024 + 1)
    declare(topology, "x")
    assert not topology.worth_compacting(2 * topology._size + 64 * 1024)  # noqa: SLF001
    assert topology.worth_compacting(2 * topology._size + 64 * 1024 + 1)  # noqa: SLF001


RECORD = records.encode(Bound(Binding("amq.direct", Q1, "k", b"\0\0\0\3\1aV")))


def replaced(at: int, byte: int) -> bytes:
    """Return a record with another byte."""
    return RECORD[:at] + bytes((byte,)) + RECORD[at + 1 :]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (RECORD[:10], "10 bytes are less than a header of 18"),
        (RECORD[:-1], f"its length {len(RECORD)} is not that of what it holds"),
        (replaced(0, 0), "its length 0 is not that of what it holds"),
        (replaced(0, 17), "its length 17 is not that of what it holds"),
        (replaced(4, 2), "its version is 2, not 1"),
        (replaced(5, 0), "its kind 0 is unknown"),
        (replaced(5, 8), "its kind 8 is unknown"),
        (replaced(7, 255), "its length"),
        (replaced(18, 0xFF), "utf-8"),
        (replaced(len(RECORD) - 1, 0x3F), "no value of type b'?'"),
        (records.encode(Declared(Exchange("x", "zz"))), "its type of exchange 'zz' is unknown"),
    ],
)
def test_damage_is_named(topology: Topology, data: bytes, text: str) -> None:
    """The error says where and what is wrong; the records before are applied."""
    with pytest.raises(CorruptSegment) as error:
        topology.replay(RECORD + data)
    assert f"record at byte {len(RECORD)} of {len(RECORD) + len(data)}" in error.value.text
    assert text in error.value.text
    assert len(topology.bindings_from("amq.direct")) == 1


def test_every_record_survives(topology: Topology) -> None:
    """What was recorded is what is read, one after the other."""
    written = [
        Declared(Exchange("x", "topic", durable=True, internal=True, arguments={"a": [1, {"b": 2.5}]})),
        Deleted("é"),
        Bound(Binding("x", Q1, "k", RECORD[-7:])),
        Unbound(Binding("x", ToExchange("y"), "")),
        QueueGone(ToQueue("q", 2**64 - 1)),
    ]
    data = b"".join(map(records.encode, written))
    read = list(records.decode(data))
    assert [change for change, _ in read] == written
    assert sum(length for _, length in read) == len(data)
    topology.replay(b"")
