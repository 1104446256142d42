# SPDX-License-Identifier: Apache-2.0
"""Routing: which queues get a message, in which order, each once."""

from __future__ import annotations

import datetime as dt
import pickle
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker._topology import changes
from shmbroker._topology.binding import ANY_INCARNATION, ToExchange, ToQueue
from shmbroker._topology.routing import Router
from shmbroker._topology.state import Topology
from shmbroker.exceptions import NotFound

if TYPE_CHECKING:
    from shmbroker._topology.binding import Destination


class Bench:
    """A topology and its router, with short ways to change and to ask."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.router = Router(self.topology)

    def declare(self, name: str, kind: str = "direct", **options: object) -> None:
        """Declare an exchange."""
        self.topology.replay(changes.declare(self.topology, name, kind, **options))

    def bind(self, source: str, to: str | Destination, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        """Bind a queue (of that name, and incarnation 1) or whatever it is."""
        destination = ToQueue(to, 1) if isinstance(to, str) else to
        self.topology.replay(changes.bind(self.topology, source, destination, key, arguments))

    def unbind(
        self, source: str, to: str | Destination, key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Undo a `bind`."""
        destination = ToQueue(to, 1) if isinstance(to, str) else to
        self.topology.replay(changes.unbind(self.topology, source, destination, key, arguments))

    def route(self, exchange: str, key: str = "", headers: dict[str, Any] | None = None, *keys: str) -> list[str]:
        """Return the names of the queues; none comes twice."""
        found = self.router.route(exchange, key, headers, keys)
        assert len(set(found)) == len(found)
        return [queue.name for queue in found]


@pytest.fixture
def bench() -> Bench:
    """Nothing is declared."""
    return Bench()


def test_the_default_exchange_takes_the_key_for_a_queue(bench: Bench) -> None:
    """Whether there is such a queue is not for the router to say; several keys are several queues."""
    assert bench.router.route("", "q") == (ToQueue("q", ANY_INCARNATION),)
    assert bench.route("", "q", None, "p", "q") == ["q", "p"]


def test_an_exchange_that_is_missing(bench: Bench) -> None:
    """It is 404, also after it was deleted."""
    bench.declare("x")
    bench.topology.replay(changes.delete(bench.topology, "x"))
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'"):
        bench.route("x")


def test_direct(bench: Bench) -> None:
    """The key must be equal; order is that of binding, and a queue comes once."""
    for queue, key in (("b", "k"), ("a", "k"), ("c", "l"), ("b", "l")):
        bench.bind("amq.direct", queue, key)
    assert bench.route("amq.direct", "k") == ["b", "a"]
    assert bench.route("amq.direct", "l", None, "k") == ["b", "a", "c"]
    assert bench.route("amq.direct", "k.l") == bench.route("amq.direct") == []
    bench.unbind("amq.direct", "b", "k")
    assert bench.route("amq.direct", "k") == ["a"]
    bench.unbind("amq.direct", "a", "k")
    assert bench.route("amq.direct", "k") == []


def test_fanout_ignores_the_key(bench: Bench) -> None:
    """Every queue gets one copy, however often it is bound, until its last binding goes."""
    for queue, key in (("b", "k"), ("a", ""), ("b", "l")):
        bench.bind("amq.fanout", queue, key)
    assert bench.route("amq.fanout", "whatever") == ["b", "a"]
    bench.unbind("amq.fanout", "b", "k")
    assert bench.route("amq.fanout") == ["a", "b"]
    bench.unbind("amq.fanout", "b", "l")
    assert bench.route("amq.fanout") == ["a"]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "b.a", "", "a."]),
        ("*", ["a", "*", "#"], ["", "a.b", "."]),
        ("*.b", ["a.b", ".b"], ["b", "a.a.b", "a.c"]),
        ("#", ["", "a", "a.b.c", "."], []),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b.a", "ab"]),
        ("#.a", ["a", "b.a", "a.a.a"], ["", "a.b"]),
        ("#.a.#", ["a", "b.a", "a.b", "b.a.b", "a.a"], ["", "b", "b.b"]),
        ("*.#", ["a", "a.b", "."], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("#.#", ["", "a", "a.b.c"], []),
        ("#.a.*.#", ["a.b", "a.a", "b.a.c.d"], ["a", "b.a"]),
        ("", [""], ["a", "."]),
        ("a..b", ["a..b"], ["a.b", "a.x.b"]),
        ("a*", ["a*"], ["ab"]),
    ],
)
def test_topic(bench: Bench, pattern: str, matching: list[str], others: list[str]) -> None:
    """A * is one word, even an empty one; a # any number; the empty key has no words."""
    bench.bind("amq.topic", "q", pattern)
    assert [key for key in matching + others if bench.route("amq.topic", key)] == matching
    bench.unbind("amq.topic", "q", pattern)
    assert [key for key in matching + others if bench.route("amq.topic", key)] == []


def test_a_key_that_matches_in_many_ways_is_one_copy(bench: Bench) -> None:
    """Bindings that overlap, and one binding that matches in two ways."""
    bench.bind("amq.topic", "b", "x.#")
    bench.bind("amq.topic", "a", "#.x.#")
    bench.bind("amq.topic", "b", "#.x")
    assert bench.route("amq.topic", "x.x") == ["b", "a"]
    assert bench.route("amq.topic", "y", None, "y.x", "x") == ["b", "a"]


def test_a_key_of_very_many_words(bench: Bench) -> None:
    """The ways to match multiply, the work does not: this would not end otherwise."""
    for number in range(20):
        bench.bind("amq.topic", f"q{number}", "#.a.a.#." + "*." * number + "b")
    assert bench.route("amq.topic", "a." * 120 + "a") == []
    assert len(bench.route("amq.topic", "a." * 120 + "b")) == 20


def test_unbinding_leaves_the_longer_and_the_shorter_pattern(bench: Bench) -> None:
    """Patterns share their beginnings."""
    for pattern in ("a", "a.b", "a.b.c", "a.#.c"):
        bench.bind("amq.topic", pattern, pattern)
    bench.unbind("amq.topic", "a.b", "a.b")
    assert bench.route("amq.topic", "a.b") == []
    assert bench.route("amq.topic", "a") == ["a"]
    assert bench.route("amq.topic", "a.b.c") == ["a.b.c", "a.#.c"]
    bench.unbind("amq.topic", "a.b.c", "a.b.c")
    bench.bind("amq.topic", "a.b", "a.b")
    assert bench.route("amq.topic", "a.b.c") == ["a.#.c"]
    assert bench.route("amq.topic", "a.b") == ["a.b"]


def test_unbinding_leaves_the_other_binding_of_a_pattern(bench: Bench) -> None:
    """Its own pattern, or the one that it begins with."""
    for queue, pattern in (("a", "x.y"), ("b", "x.y"), ("c", "x")):
        bench.bind("amq.topic", queue, pattern)
    bench.unbind("amq.topic", "a", "x.y")
    assert bench.route("amq.topic", "x.y") == ["b"]
    bench.unbind("amq.topic", "b", "x.y")
    assert bench.route("amq.topic", "x") == ["c"]


H1, H2, H3, X = {"h1": "12345"}, {"h2": "bar"}, {"h3": None}, {"x-h": 1}
WANTED = H1 | H2 | H3


@pytest.mark.parametrize(
    ("headers", "queues"),
    [
        ({}, []),
        (H1, ["any", "any-with-x"]),
        (H1 | H2, ["any", "any-with-x"]),
        (WANTED, ["default", "all", "any", "any-with-x"]),
        (H1 | H2 | {"h3": "x", "h4": 1}, ["default", "all", "any", "any-with-x"]),
        (H1 | H2 | {"h3": 0} | X, ["default", "all", "any", "all-with-x", "any-with-x"]),
        ({"h1": 12345}, []),
        ({"h3": False}, ["any", "any-with-x"]),
        (X, ["any-with-x"]),
        ({"x-h": 2}, []),
        ({"x-h": True}, []),
        ({"x-match": "all"}, []),
    ],
    ids=repr,
)
def test_headers(bench: Bench, headers: dict[str, Any], queues: list[str]) -> None:
    """All or any of the pairs; None is any value; names that begin with x- count only if that is asked for."""
    bench.bind("amq.headers", "default", "", WANTED | X)
    for match in ("all", "any", "all-with-x", "any-with-x"):
        bench.bind("amq.headers", match, "", WANTED | X | {"x-match": match})
    assert bench.route("amq.headers", "", headers) == queues
    assert bench.route("amq.match", "", headers) == []


def test_without_pairs_all_is_true_and_any_is_false(bench: Bench) -> None:
    """Also if there are only pairs that do not count."""
    for number, arguments in enumerate(({}, {"x-match": "all"}, {"x-match": "all-with-x"}, {"x-a": 1})):
        bench.bind("amq.match", f"all{number}", "", arguments)
    for number, arguments in enumerate(({"x-match": "any"}, {"x-match": "any-with-x"}, {"x-match": "any", "x-a": 1})):
        bench.bind("amq.match", f"any{number}", "", arguments)
    for headers in (None, {}, {"x-a": 1}, {"x-match": "any"}):
        assert bench.route("amq.match", "", headers) == ["all0", "all1", "all2", "all3"]


NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ALIKE = [
    [1, 2 - 1],
    [1.0],
    [True],
    ["1"],
    [b"1", bytearray(b"1")],
    [Decimal(1)],
    [300, 299 + 1],
    [2**40],
    [NOW, NOW.astimezone(dt.timezone(dt.timedelta(hours=2)))],
    [[1, "a"]],
    [[True, "a"]],
    [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    [{"a": 1.0, "b": 2}],
]


def test_headers_are_strictly_equal(bench: Bench) -> None:
    """The type counts, the width of an integer does not; in lists and tables too."""
    for number, values in enumerate(ALIKE):
        bench.bind("amq.headers", str(number), "", {"a": values[0]})
    for number, values in enumerate(ALIKE):
        for value in values:
            assert bench.route("amq.headers", "", {"a": value}) == [str(number)]


def test_a_tuple_is_an_array(bench: Bench) -> None:
    """As which it travels in a message's headers."""
    bench.bind("amq.headers", "q", "", {"a": [1, "b"]})
    assert bench.route("amq.headers", "", {"a": (1, "b")}) == ["q"]
    assert bench.route("amq.headers", "", {"a": (1,)}) == []
    bench.bind("amq.headers", "nested", "", {"a": [[1, {"b": [2]}]]})
    for value in ([(1, {"b": (2,)})], ([1, {"b": [2]}],), [[1, {"b": (2,)}]]):
        assert bench.route("amq.headers", "", {"a": value}) == ["nested"]


def test_a_struct_time_is_a_time(bench: Bench) -> None:
    """As which it travels in a message's headers, although it is a tuple."""
    bench.bind("amq.headers", "q", "", {"a": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)})
    assert bench.route("amq.headers", "", {"a": time.struct_time((2026, 1, 2, 0, 0, 0, 4, 2, 0))}) == ["q"]


def test_a_header_that_amqp_cannot_say_equals_nothing(bench: Bench) -> None:
    """But it is there."""
    bench.bind("amq.headers", "equal", "", {"a": 1})
    bench.bind("amq.headers", "there", "", {"a": None})
    assert bench.route("amq.headers", "", {"a": object()}) == ["there"]


def test_equal_tables_are_one_for_matching_but_not_for_unbinding(bench: Bench) -> None:
    """Queues with the same arguments come and go one by one."""
    for queue in ("b", "a"):
        bench.bind("amq.headers", queue, "", {"a": 1, "b": 2})
    assert bench.route("amq.headers", "", {"a": 1, "b": 2}) == ["b", "a"]
    bench.unbind("amq.headers", "b", "", {"b": 2, "a": 1})
    assert bench.route("amq.headers", "", {"a": 1, "b": 2}) == ["a"]
    bench.unbind("amq.headers", "a", "", {"a": 1, "b": 2})
    assert bench.route("amq.headers", "", {"a": 1, "b": 2}) == []


def test_exchanges_lead_to_exchanges(bench: Bench) -> None:
    """Each matches for itself; what is nearer comes first."""
    bench.declare("x", "topic")
    bench.declare("y", "fanout")
    bench.bind("amq.direct", ToExchange("y"), "a.b")
    bench.bind("amq.direct", ToExchange("x"), "a.b")
    bench.bind("amq.direct", "near", "a.b")
    bench.bind("x", "far", "a.#")
    bench.bind("x", "not", "b.#")
    bench.bind("y", "farther", "")
    bench.bind("y", "near", "")
    assert bench.route("amq.direct", "a.b") == ["near", "farther", "far"]
    assert bench.route("amq.direct", "a") == []


def test_circles_end(bench: Bench) -> None:
    """An exchange is visited once."""
    for name in ("x", "y"):
        bench.declare(name, "fanout")
    bench.bind("x", ToExchange("y"))
    bench.bind("y", ToExchange("x"))
    bench.bind("x", ToExchange("x"))
    bench.bind("y", "q")
    assert bench.route("x") == bench.route("y") == ["q"]


def test_alternate_exchanges(bench: Bench) -> None:
    """A chain of them that is a circle ends, and each is asked only if the one before has no destination."""
    for name, other in (("x", "u"), ("u", "v"), ("v", "x")):
        bench.declare(name, arguments={"alternate-exchange": other})
    assert bench.route("x", "k") == []
    bench.bind("v", "of v", "k")
    assert bench.route("x", "k") == bench.route("u", "k") == ["of v"]
    bench.bind("x", "of x", "k")
    assert bench.route("x", "k") == ["of x"]
    assert bench.route("v", "k") == ["of v"]
    bench.topology.replay(changes.delete(bench.topology, "v"))
    assert bench.route("u", "k") == []


def test_a_new_exchange_has_not_the_alternate_of_the_old_one(bench: Bench) -> None:
    """Of an exchange that was deleted nothing is left but its name."""
    bench.bind("amq.fanout", "q")
    bench.declare("x", arguments={"alternate-exchange": "amq.fanout"})
    bench.topology.replay(changes.delete(bench.topology, "x"))
    bench.declare("x")
    assert bench.route("x") == []


def test_a_destination_that_leads_nowhere_is_a_destination(bench: Bench) -> None:
    """As in RabbitMQ: the alternate exchange is for what matched no binding."""
    bench.declare("dead end")
    bench.declare("x", "fanout", arguments={"alternate-exchange": "amq.fanout"})
    bench.bind("amq.fanout", "q")
    assert bench.route("x") == ["q"]
    bench.bind("x", ToExchange("dead end"))
    assert bench.route("x") == []


def test_an_exchange_on_the_way_has_its_own_alternate(bench: Bench) -> None:
    """Not only the one that was published to."""
    bench.declare("x", arguments={"alternate-exchange": "amq.fanout"})
    bench.bind("amq.topic", ToExchange("x"), "#")
    bench.bind("amq.fanout", "q")
    assert bench.route("amq.topic", "k") == ["q"]


def test_the_default_exchange_as_alternate(bench: Bench) -> None:
    """It finds a queue by name, which is no second copy if a binding found it too."""
    bench.declare("x", arguments={"alternate-exchange": ""})
    assert bench.route("x", "q") == ["q"]
    bench.bind("amq.fanout", ToExchange("x"))
    bench.bind("amq.fanout", "q")
    assert bench.router.route("amq.fanout", "q") == (ToQueue("q", 1),)
    assert bench.route("amq.fanout", "p") == ["q", "p"]


def test_two_incarnations_are_two_queues(bench: Bench) -> None:
    """A queue that was deleted and declared anew has none of the old bindings."""
    bench.bind("amq.fanout", ToQueue("q", 1))
    bench.bind("amq.fanout", ToQueue("q", 2))
    bench.topology.replay(changes.queue_gone(bench.topology, ToQueue("q", 1)))
    assert bench.router.route("amq.fanout", "") == (ToQueue("q", 2),)


def test_a_router_that_comes_late_knows_everything(bench: Bench) -> None:
    """It begins with what is there, and follows from then on."""
    bench.declare("x", arguments={"alternate-exchange": "amq.topic"})
    bench.bind("amq.topic", "b", "#")
    bench.bind("amq.topic", "a", "k")
    late = Router(bench.topology)
    bench.bind("x", "c", "l")
    for key in ("k", "l", "m"):
        assert late.route("x", key) == bench.router.route("x", key)
    assert bench.route("x", "k") == ["b", "a"]


def test_what_was_removed_leaves_nothing_behind(bench: Bench) -> None:
    """A router from which all bindings are gone again is as small as at the beginning."""
    before = len(pickle.dumps(bench.router))
    tables: list[dict[str, Any]] = [{}, {"a": 1, "b": None}, {"x-match": "any", "a": 1, "b": 2}, {"x-match": "any"}]
    made = [
        (f"amq.{kind}", queue, key, table)
        for kind in ("direct", "fanout", "topic", "headers")
        for queue in ("p", "q")
        for key in ("", "a", "a.#.b", "a.b.#")
        for table in tables
    ]
    for one in made:
        bench.bind(*one)
    assert bench.route("amq.headers", "", {"a": 1, "b": 3}) == ["p", "q"]
    for one in made:
        bench.unbind(*one)
    assert len(pickle.dumps(bench.router)) == before
