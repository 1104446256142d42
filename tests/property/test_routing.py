# SPDX-License-Identifier: Apache-2.0
"""Topology and routing against a model that looks at every binding, every time, in the plainest way."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shmbroker._amqp import field_tables
from shmbroker._topology import records
from shmbroker._topology.binding import ANY_INCARNATION, Binding, Destination, ToExchange, ToQueue
from shmbroker._topology.exchange import PREDECLARED, TYPES, Exchange
from shmbroker._topology.records import Bound, Change, Declared, Deleted, QueueGone, Unbound
from shmbroker._topology.routing import Router
from shmbroker._topology.state import Topology
from shmbroker.exceptions import CorruptSegment

OFTEN = settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
NAMES = ("a", "b", "c", "d")

words = st.sampled_from(["", "x", "y", "*", "#"])
keys = st.lists(words, max_size=4).map(".".join)
values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 300, 0.0, 1.0, "", "1", b"1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
headers = st.dictionaries(st.sampled_from(["a", "b", "x-a", "x-match"]), values, max_size=3)
matches = st.sampled_from(["all", "any", "all-with-x", "any-with-x", None])
arguments = st.builds(lambda table, match: table if match is None else {**table, "x-match": match}, headers, matches)
queues = st.builds(ToQueue, st.sampled_from(NAMES), st.integers(1, 2))
sources = st.sampled_from([*NAMES, "amq.topic", "amq.headers", ""])
destinations: st.SearchStrategy[Destination] = queues | sources.map(ToExchange)
bindings = st.builds(Binding, sources, destinations, keys, st.just(b"") | arguments.map(field_tables.encode))
exchanges = st.builds(
    Exchange,
    st.sampled_from([*NAMES, "amq.topic"]),
    st.sampled_from(TYPES),
    auto_delete=st.booleans(),
    arguments=st.just({}) | st.sampled_from([*NAMES, ""]).map(lambda name: {"alternate-exchange": name}),
)
changes: st.SearchStrategy[Change] = st.one_of(
    bindings.map(Bound),
    bindings.map(Bound),
    exchanges.map(Declared),
    bindings.map(Unbound),
    sources.map(Deleted),
    queues.map(QueueGone),
)


@dataclass
class Model:
    """Exchanges, and a list of bindings."""

    exchanges: dict[str, Exchange] = field(default_factory=lambda: dict(PREDECLARED))
    bindings: list[Binding] = field(default_factory=list)

    def apply(self, change: Change) -> None:
        """Do as was said, if it can be; see what follows."""
        match change:
            case Declared(exchange):
                self.exchanges.setdefault(exchange.name, exchange)
            case Deleted(name):
                if name not in PREDECLARED:
                    self.exchanges.pop(name, None)
                    self.settle()
            case Bound(binding):
                if self.possible(binding) and binding not in self.bindings:
                    self.bindings.append(binding)
            case Unbound(binding):
                self.settle(without=[binding])
            case QueueGone(queue):
                self.settle(without=[one for one in self.bindings if one.destination == queue])

    def possible(self, binding: Binding) -> bool:
        """Return whether both ends are there."""
        ends = [binding.source]
        if isinstance(binding.destination, ToExchange):
            ends.append(binding.destination.name)
        return "" not in ends and all(end in self.exchanges for end in ends)

    def settle(self, without: list[Binding] | None = None) -> None:
        """Remove bindings, and what can no longer be, until nothing follows any more."""
        before = {one.source for one in self.bindings}
        self.bindings = [one for one in self.bindings if one not in (without or []) and self.possible(one)]
        bereft = before - {one.source for one in self.bindings}
        gone = [name for name in bereft if name in self.exchanges and self.exchanges[name].auto_delete]
        for name in gone:
            del self.exchanges[name]
        if gone:
            self.settle()

    def route(self, exchange: str, wanted: list[str], given: dict[str, Any]) -> list[ToQueue]:
        """Return the queues that get a message."""
        found: list[ToQueue] = []
        visited: list[str] = []
        pending = [exchange]
        while pending:
            name = pending.pop(0)
            if name in visited or name not in self.exchanges:
                continue
            visited.append(name)
            matching = self.matching(name, wanted, given)
            alternate = self.exchanges[name].alternate
            if not matching and alternate is not None:
                matching = [ToExchange(alternate)]
            found += [one for one in matching if isinstance(one, ToQueue)]
            pending += [one.name for one in matching if isinstance(one, ToExchange)]
        bound = {one.name for one in found if one.incarnation != ANY_INCARNATION}
        left = [one for one in found if one.incarnation != ANY_INCARNATION or one.name not in bound]
        return list(dict.fromkeys(left))

    def matching(self, name: str, wanted: list[str], given: dict[str, Any]) -> list[Destination]:
        """Return where the bindings of one exchange lead."""
        if name == "":
            return [ToQueue(key, ANY_INCARNATION) for key in wanted]
        kind = self.exchanges[name].type
        return [
            one.destination
            for one in self.bindings
            if one.source == name and any(is_match(kind, one, key, given) for key in wanted)
        ]


def is_match(kind: str, binding: Binding, key: str, given: dict[str, Any]) -> bool:
    """Return whether a binding matches."""
    if kind == "direct":
        return binding.routing_key == key
    if kind == "topic":
        return words_match(split(binding.routing_key), split(key))
    return kind == "fanout" or headers_match(binding.arguments, given)


def split(key: str) -> list[str]:
    """Return the words of a key."""
    return key.split(".") if key else []


def words_match(pattern: list[str], key: list[str]) -> bool:
    """Return whether a key matches a pattern."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(words_match(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in {"*", key[0]} and words_match(pattern[1:], key[1:])


def headers_match(table: dict[str, Any], given: dict[str, Any]) -> bool:
    """Return whether headers match a binding's arguments."""
    match = table.get("x-match")
    with_x = same(match, "any-with-x") or same(match, "all-with-x")
    results = [
        name in given and (value is None or same(value, given[name]))
        for name, value in table.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    return any(results) if same(match, "any") or same(match, "any-with-x") else all(results)


def same(one: object, other: object) -> bool:
    """Return whether two values are of one type and equal, through and through."""
    if isinstance(one, (bytes, bytearray)) and isinstance(other, (bytes, bytearray)):
        return bytes(one) == bytes(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return one == other


def agree(topology: Topology, model: Model) -> None:
    """Compare all that a topology says of itself."""
    assert topology.exchanges == model.exchanges
    for name in [*NAMES, *PREDECLARED]:
        assert list(topology.bindings_from(name)) == [one for one in model.bindings if one.source == name]
        for end in (ToExchange(name), ToQueue(name, 1), ToQueue(name, 2)):
            assert list(topology.bindings_to(end)) == [one for one in model.bindings if one.destination == end]
    assert topology._size == len(topology.snapshot())  # noqa: SLF001


@OFTEN
@given(st.lists(changes, max_size=40))
def test_a_topology_is_its_model(done: list[Change]) -> None:
    """Whatever is recorded, what follows is what the model says, after each record."""
    topology, model = Topology(), Model()
    for change in done:
        topology.replay(records.encode(change))
        model.apply(change)
        agree(topology, model)


@OFTEN
@given(st.lists(changes, max_size=40), st.lists(changes, max_size=20))
def test_a_compacted_journal_is_the_journal(done: list[Change], more: list[Change]) -> None:
    """A snapshot instead of the records before gives the same table, also with all that comes after."""
    long, short = Topology(), Topology()
    long.replay(b"".join(map(records.encode, done)))
    short.replay(long.snapshot())
    for journal in (b"", b"".join(map(records.encode, more))):
        long.replay(journal)
        short.replay(journal)
        assert list(short.exchanges.items()) == list(long.exchanges.items())
        for name in long.exchanges:
            assert list(short.bindings_from(name)) == list(long.bindings_from(name))
        assert short.snapshot() == long.snapshot()


@OFTEN
@given(st.lists(changes, max_size=40), st.lists(st.tuples(st.lists(keys, min_size=1, max_size=3), headers), max_size=8))
def test_a_router_finds_what_the_model_finds(done: list[Change], messages: list[tuple[list[str], Any]]) -> None:
    """The same queues in the same order, by a router that followed every change and by one that came at the end."""
    topology, model = Topology(), Model()
    router = Router(topology)
    for change in done:
        topology.replay(records.encode(change))
        model.apply(change)
    for wanted, given_headers in messages:
        for name in model.exchanges:
            expected = model.route(name, wanted, given_headers)
            for one in (router, Router(topology)):
                found = one.route(name, wanted[0], given_headers, tuple(wanted[1:]))
                assert list(found) == expected


@OFTEN
@given(
    st.sampled_from(["topic", "headers"]),
    st.lists(st.tuples(st.lists(words, max_size=5).map(".".join), arguments), max_size=30),
    st.lists(st.integers(0, 29), max_size=20),
    st.lists(st.tuples(st.lists(words, max_size=6).map(".".join), headers), min_size=1, max_size=5),
)
def test_patterns_are_what_they_look_like(
    kind: str, wanted: list[tuple[str, Any]], removed: list[int], messages: list[tuple[str, Any]]
) -> None:
    """Many patterns in one exchange, some of them removed again: each matches as if it were alone."""
    topology, model = Topology(), Model()
    router = Router(topology)
    made = [
        Binding(f"amq.{kind}", ToQueue(f"q{number}", 1), key, field_tables.encode(table))
        for number, (key, table) in enumerate(wanted)
    ]
    done = [*map(Bound, made), *(Unbound(made[one]) for one in removed if one < len(made))]
    for change in done:
        topology.replay(records.encode(change))
        model.apply(change)
    for key, given_headers in messages:
        expected = model.route(f"amq.{kind}", [key], given_headers)
        assert list(router.route(f"amq.{kind}", key, given_headers)) == expected


@OFTEN
@given(
    st.binary(max_size=80)
    | st.lists(changes, min_size=1, max_size=3).map(lambda done: b"".join(map(records.encode, done))),
    st.data(),
)
def test_damage_never_goes_unnamed(data: bytes, more: st.DataObject) -> None:
    """Bytes that are no records, or records with a byte changed, are refused or read: nothing else happens."""
    if data:
        at = more.draw(st.integers(0, len(data) - 1))
        data = data[:at] + more.draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
    topology = Topology()
    Router(topology)
    with contextlib.suppress(CorruptSegment):
        topology.replay(data)
        assert topology._size == len(topology.snapshot())  # noqa: SLF001
