# SPDX-License-Identifier: Apache-2.0
"""The parts of the topology by themselves: places, matchers, records and the table."""

from __future__ import annotations

import gc
import struct
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker._amqp import field_tables
from shmbroker._topology import changes, ordered, records, state
from shmbroker._topology.binding import Binding, ToExchange, ToQueue
from shmbroker._topology.exchange import Exchange
from shmbroker._topology.matching import matcher_for
from shmbroker._topology.records import Bound, Declared, Deleted, QueueGone, Unbound
from shmbroker._topology.routing import Router
from shmbroker._topology.state import Topology
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

Q1 = ToQueue("q1", 7)
TABLE = field_tables.encode({"a": 1})


def test_places_without_one() -> None:
    """None of none, none of one, and of several those that are left."""
    assert ordered.remove(None, 1) is None
    assert ordered.remove((1, "a"), 1) is None
    assert ordered.remove({1: "a", 2: "b"}, 1) == {2: "b"}
    assert ordered.remove({2: "b"}, 2) is None


def test_a_record_is_as_it_is_described() -> None:
    """What a record does not say is 0: older and newer packages read the same bytes."""

    def record(kind: int, flags: int, lengths: tuple[int, int, int], number: int, rest: bytes) -> bytes:
        return struct.pack("<IBBBBBBQ", 18 + len(rest), 1, kind, flags, *lengths, number) + rest

    exchange = Exchange("x", "topic", durable=True, internal=True, arguments={"a": 1})
    to_exchange = Binding("x", ToExchange("yy"), "key", TABLE)
    assert records.encode(Declared(exchange)) == record(1, 5, (1, 5, 0), 0, b"xtopic" + TABLE)
    assert records.encode(Declared(Exchange("x", auto_delete=True))) == record(1, 2, (1, 6, 0), 0, b"xdirect")
    assert records.encode(Deleted("x")) == record(2, 0, (1, 0, 0), 0, b"x")
    assert records.encode(Bound(Binding("x", Q1, "k"))) == record(3, 1, (1, 2, 1), 7, b"xq1k")
    assert records.encode(Bound(to_exchange)) == record(3, 0, (1, 2, 3), 0, b"xyykey" + TABLE)
    assert records.encode(Unbound(to_exchange)) == record(4, 0, (1, 2, 3), 0, b"xyykey" + TABLE)
    assert records.encode(QueueGone(Q1)) == record(5, 0, (2, 0, 0), 7, b"q1")


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_matcher_without_bindings_has_no_leaves(kind: str) -> None:
    """Neither before the first binding nor after the last one; a key that is not bound has none beside one that is."""
    matcher, binding = matcher_for(Exchange("x", kind)), Binding("x", Q1, "k", TABLE if kind == "headers" else b"")
    assert matcher.leaves(("k",), {"a": 1}) == []
    matcher.add(binding, 0)
    assert matcher.leaves(("miss", "k"), {"a": 1}) == [(0, Q1)]
    matcher.remove(binding, 0)
    assert matcher.leaves(("miss", "k"), {"a": 1}) == []


def test_headers_behind_one_that_amqp_cannot_say() -> None:
    """They are looked at all the same."""
    matcher = matcher_for(Exchange("x", "headers"))
    matcher.add(Binding("x", Q1, "", TABLE), 0)
    assert matcher.leaves((), {"bad": object(), "a": 1}) == [(0, Q1)]


def test_a_message_without_headers_is_routed() -> None:
    """Where headers count, it is one with none; further keys that are not bound are passed over."""
    topology = Topology()
    router = Router(topology)
    topology.replay(changes.bind(topology, "amq.headers", Q1, arguments={"a": 1}))
    topology.replay(changes.bind(topology, "amq.direct", Q1, "k"))
    assert router.route("amq.headers", "") == ()
    assert router.route("amq.headers", "", {"a": 1}) == (Q1,)
    assert router.route("amq.direct", "miss", None, ("k", "other")) == (Q1,)


@pytest.mark.parametrize("change", [changes.bind, changes.unbind])
@pytest.mark.parametrize(
    ("source", "key", "error"),
    [(7, "k", TypeError), ("x", 7, TypeError), ("a\0b", "k", ValueError), ("x" * 256, "k", ValueError)],
    ids=["source", "key", "NUL", "too long"],
)
def test_names_of_bindings_are_checked_first(
    change: Callable[..., bytes], source: object, key: object, error: type[Exception]
) -> None:
    """Also where there is no such exchange."""
    with pytest.raises(error, match=r"exchange name|routing key"):
        change(Topology(), source, Q1, key)


@pytest.mark.parametrize("kind", ["direct", "fanout", "headers", "topic"])
def test_arguments_need_not_be_given(kind: str) -> None:
    """A binding without any is one with none."""
    topology = Topology()
    topology.replay(changes.bind(topology, f"amq.{kind}", Q1, "k"))
    assert list(topology.bindings_from(f"amq.{kind}")) == [Binding(f"amq.{kind}", Q1, "k")]
    assert changes.bind(topology, f"amq.{kind}", Q1, "k", {}) == b""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "field type void (value undefined)"),
        (True, "field type bool (value true)"),
        ("zz", 'field value <<"zz">>'),
    ],
)
def test_a_match_that_there_is_not(value: Any, text: str) -> None:  # noqa: ANN401
    """It is named as RabbitMQ names it."""
    with pytest.raises(PreconditionFailed) as caught:
        changes.bind(Topology(), "amq.headers", Q1, "", {"x-match": value})
    assert f"Invalid x-match {text}; expected" in caught.value.text


def test_what_a_table_says_of_its_bindings() -> None:
    """Which queues are bound, and whether a binding looks at headers: one of the type does, other ones do not."""
    topology = Topology()
    assert repr(topology) == "<Topology of 6 exchanges and 0 bindings>"
    assert (topology.bound_queues(), topology.looks_at_headers()) == ([], False)
    topology.replay(changes.bind(topology, "amq.fanout", Q1))
    topology.replay(changes.bind(topology, "amq.fanout", ToExchange("amq.topic")))
    topology.replay(changes.declare(topology, "x"))
    assert repr(topology) == "<Topology of 7 exchanges and 2 bindings>"
    assert (topology.bound_queues(), topology.looks_at_headers()) == ([Q1], False)
    topology.replay(changes.bind(topology, "amq.match", Q1))
    assert (topology.bound_queues(), topology.looks_at_headers()) == ([Q1], True)


def test_a_binding_that_is_recorded_twice_is_one() -> None:
    """As if a writer had been killed after it appended one."""
    topology = Topology()
    record = records.encode(Bound(Binding("amq.direct", Q1, "k")))
    topology.replay(record + record)
    assert list(topology.bindings_to(Q1)) == [Binding("amq.direct", Q1, "k")]
    assert topology._size == len(record)  # noqa: SLF001
    assert topology.snapshot() == record


class Watching:
    """An observer that notes whether garbage is looked for while an exchange is declared."""

    def __init__(self) -> None:
        self.collects: list[bool] = []

    def declared(self, exchange: Exchange) -> None:
        """Note it."""
        if not exchange.predeclared:
            self.collects.append(gc.isenabled())


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_not_looked_for_while_much_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
    enabled: bool,  # noqa: FBT001
) -> None:
    """Where there are more bytes than some; afterwards it is looked for as before, after an error too."""
    topology, watching = Topology(), Watching()
    topology.observe(watching)  # type: ignore[arg-type] # nothing else happens
    one, two = (changes.declare(topology, name) for name in ("one", "two"))
    monkeypatch.setattr(state, "_LARGE", len(one))
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        topology.replay(one)
        with pytest.raises(state.records.CorruptSegment):
            topology.replay(two + b"damage")
        assert (watching.collects, gc.isenabled()) == ([enabled, False], enabled)
    finally:
        (gc.enable if before else gc.disable)()
