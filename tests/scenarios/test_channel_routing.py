# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings: which queues get a message (scenarios B26 to B34)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Returned, Rounds, assert_closed, content, exists, publish, refused, routed

from shmbroker import BasicProperties
from shmbroker.exceptions import AccessRefused, BrokerError, NotFound, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

DEFAULT_EXCHANGE = "ACCESS_REFUSED - operation not permitted on the default exchange"


def queues(channel: shmbroker.Channel, *names: str) -> tuple[str, ...]:
    """Declare queues and return their names."""
    for name in names:
        channel.queue_declare(name)
    return names


def test_b26_two_bindings_that_match_make_one_copy(channel: shmbroker.Channel) -> None:
    """A queue bound with x.# and #.x gets one copy of a message with key x.x."""
    names = queues(channel, "q")
    channel.queue_bind("q", "amq.topic", "x.#")
    channel.queue_bind("q", "amq.topic", "#.x")
    assert routed(channel, "amq.topic", "x.x", names) == ["q"]
    assert routed(channel, "amq.topic", "x.y", names) == ["q"]
    assert routed(channel, "amq.topic", "y.x", names) == ["q"]
    assert routed(channel, "amq.topic", "y.y", names) == []


TOPICS = [
    ("a.b.c", ["a.b.c"], ["a.b", "a.b.c.d", "a.b.d", "", "A.b.c"]),
    ("*", ["a", "b"], ["", "a.b"]),
    ("*.*", ["a.b", "."], ["a", "a.b.c", ""]),
    ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
    ("#", ["", "a", "a.b", "a.b.c.d.e", ".", "..."], []),
    ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b", "ab", "b.a"]),
    ("#.a", ["a", "b.a", "c.b.a", ".a"], ["", "b", "a.b", "ba"]),
    ("a.#.c", ["a.c", "a.b.c", "a.b.b.c", "a.c.c"], ["a", "c", "a.b", "b.c"]),
    ("#.*", ["a", "a.b", "a.b.c"], [""]),
    ("*.#.*", ["a.b", "a.b.c", "a.b.c.d"], ["", "a"]),
    ("#.b.#", ["b", "a.b", "b.c", "a.b.c", "a.a.b.b.c"], ["", "a", "a.c"]),
    ("", [""], ["a", "."]),
    ("a.b#", ["a.b#"], ["a.b", "a.b.c"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), TOPICS, ids=[repr(pattern) for pattern, _, _ in TOPICS])
def test_b26_topic_patterns(channel: shmbroker.Channel, pattern: str, matching: list[str], others: list[str]) -> None:
    """A star is one word, a hash any number of words, none included; an empty key has no words."""
    names = queues(channel, "q")
    channel.queue_bind("q", "amq.topic", pattern)
    assert {key: routed(channel, "amq.topic", key, names) for key in matching} == {key: ["q"] for key in matching}
    assert {key: routed(channel, "amq.topic", key, names) for key in others} == {key: [] for key in others}


def test_b27_fanout_ignores_the_key(channel: shmbroker.Channel) -> None:
    """Every bound queue gets every message, whatever its key and the bindings'."""
    names = queues(channel, "a", "b", "c", "unbound")
    for name in ("a", "b", "c"):
        channel.queue_bind(name, "amq.fanout", f"key of {name}")
    for key in ("", "key of a", "anything"):
        assert routed(channel, "amq.fanout", key, names) == ["a", "b", "c"]


def test_b27_a_hundred_queues_get_a_message_without_a_key(channel: shmbroker.Channel) -> None:
    """A hundred queues bound to a topic exchange with '#' all get it."""
    names = [channel.queue_declare("").queue for _ in range(100)]
    for name in names:
        channel.queue_bind(name, "amq.topic", "#")
    assert routed(channel, "amq.topic", "", names) == names


def test_direct_takes_equal_keys(channel: shmbroker.Channel) -> None:
    """A direct exchange compares the whole key; two queues may be bound with one key."""
    names = queues(channel, "a", "b")
    channel.exchange_declare("x", "direct")
    channel.queue_bind("a", "x", "red")
    channel.queue_bind("a", "x", "blue")
    channel.queue_bind("b", "x", "red")
    assert routed(channel, "x", "red", names) == ["a", "b"]
    assert routed(channel, "x", "blue", names) == ["a"]
    assert routed(channel, "x", "re", names) == []
    assert routed(channel, "x", "", names) == []


def test_bindings_are_a_set(channel: shmbroker.Channel) -> None:
    """To bind twice is to bind once; to unbind what is not bound is no error."""
    names = queues(channel, "q")
    for _ in range(2):
        channel.queue_bind("q", "amq.direct", "k")
    assert routed(channel, "amq.direct", "k", names) == ["q"]
    channel.queue_unbind("q", "amq.direct", "k")
    assert routed(channel, "amq.direct", "k", names) == []
    channel.queue_unbind("q", "amq.direct", "k")
    channel.queue_unbind("q", "amq.direct", "never")
    assert channel.is_open


def test_an_empty_queue_name_and_key_are_the_last_declared_queue(channel: shmbroker.Channel) -> None:
    """Queue '' is the last one declared on the channel; with it an empty key is its name."""
    channel.exchange_declare("x", "direct")
    names = queues(channel, "first", "last")
    channel.queue_bind("first", "x", "k")
    channel.queue_bind("first", "x", "")
    channel.queue_bind("", "x", "k")
    channel.queue_bind("", "x", "")
    assert routed(channel, "x", "", names) == ["first"]
    assert routed(channel, "x", "first", names) == []
    assert routed(channel, "x", "last", names) == ["last"]
    assert routed(channel, "x", "k", names) == ["first", "last"]


SUIT = {"suit": "hearts", "rank": "7", "marked": None}
"""What the queues of B28 are bound with, apart from x-match; None: the header must be there, whatever its value."""

HEADERS: list[tuple[dict[str, Any] | None, bool, bool]] = [
    # headers of the message, does `all` match, does `any`
    (None, False, False),
    ({}, False, False),
    ({"suit": "hearts"}, False, True),
    ({"rank": "7"}, False, True),
    ({"suit": "hearts", "rank": "7"}, False, True),
    ({"suit": "hearts", "rank": "7", "marked": None}, True, True),
    ({"suit": "hearts", "rank": "7", "marked": "yes"}, True, True),
    ({"suit": "hearts", "rank": "7", "marked": None, "more": 1}, True, True),
    ({"suit": "hearts", "rank": "8"}, False, True),
    ({"suit": "spades", "rank": "8", "marked": None}, False, True),
    ({"marked": None}, False, True),
    ({"suit": "spades", "rank": "8"}, False, False),
    ({"rank": 7}, False, False),
    ({"Suit": "hearts"}, False, False),
]


@pytest.mark.parametrize(("headers", "all_match", "any_match"), HEADERS)
def test_b28_headers_all_and_any(
    channel: shmbroker.Channel, headers: dict[str, Any] | None, *, all_match: bool, any_match: bool
) -> None:
    """`all` (the default) wants every header, `any` one of them; values are compared with their types."""
    names = queues(channel, "default", "all", "any")
    channel.queue_bind("default", "amq.match", "", SUIT)
    channel.queue_bind("all", "amq.match", "", SUIT | {"x-match": "all"})
    channel.queue_bind("any", "amq.match", "", SUIT | {"x-match": "any"})
    properties = None if headers is None else BasicProperties(headers=headers)
    expected = ["default", "all"] * all_match + ["any"] * any_match
    assert routed(channel, "amq.match", "ignored", names, properties=properties) == expected


@pytest.mark.parametrize(
    ("match", "headers", "expected"),
    [
        ("all", {"a": 1}, True),
        ("all-with-x", {"a": 1}, False),
        ("all-with-x", {"a": 1, "x-b": 2}, True),
        ("any", {"x-b": 2}, False),
        ("any", {"a": 1}, True),
        ("any-with-x", {"x-b": 2}, True),
        ("any-with-x", {"a": 1}, True),
        ("any-with-x", {"x-b": 3}, False),
    ],
)
def test_b28_headers_that_begin_with_x(
    channel: shmbroker.Channel, match: str, headers: dict[str, Any], *, expected: bool
) -> None:
    """`all` and `any` ignore what begins with x-; `all-with-x` and `any-with-x` do not."""
    names = queues(channel, "q")
    channel.queue_bind("q", "amq.headers", "", {"a": 1, "x-b": 2, "x-match": match})
    got = routed(channel, "amq.headers", "", names, properties=BasicProperties(headers=headers))
    assert got == ["q"] * expected


@pytest.mark.parametrize("headers", [None, {}, {"a": 1}])
def test_b28_no_arguments_match_all_and_not_any(channel: shmbroker.Channel, headers: dict[str, Any] | None) -> None:
    """A binding without headers: `all` matches every message, `any` none."""
    names = queues(channel, "default", "all", "any")
    channel.queue_bind("default", "amq.match")
    channel.queue_bind("all", "amq.match", arguments={"x-match": "all"})
    channel.queue_bind("any", "amq.match", arguments={"x-match": "any"})
    got = routed(channel, "amq.match", "", names, properties=BasicProperties(headers=headers))
    assert got == ["default", "all"]


def test_b28_one_queue_with_several_header_bindings_gets_one_copy(channel: shmbroker.Channel) -> None:
    """Bindings that differ in arguments only are several; each is unbound by its own."""
    names = queues(channel, "q")
    for headers in ({"a": 1}, {"b": 2}):
        channel.queue_bind("q", "amq.match", "", headers)
    both = BasicProperties(headers={"a": 1, "b": 2})
    assert routed(channel, "amq.match", "", names, properties=both) == ["q"]
    channel.queue_unbind("q", "amq.match", "", {"a": 1})
    assert routed(channel, "amq.match", "", names, properties=both) == ["q"]
    assert routed(channel, "amq.match", "", names, properties=BasicProperties(headers={"a": 1})) == []


def test_exchanges_bound_to_exchanges(channel: shmbroker.Channel) -> None:
    """A message goes on from exchange to exchange by its key, comes once, and cycles end."""
    names = queues(channel, "a", "b")
    for name in ("x", "y", "z"):
        channel.exchange_declare(name, "topic")
    channel.exchange_bind("y", "x", "y.#")
    channel.exchange_bind("z", "y", "#")
    channel.exchange_bind("x", "z", "#")
    channel.queue_bind("a", "x", "#")
    channel.queue_bind("b", "z", "y.*")
    assert routed(channel, "x", "y.1", names) == ["a", "b"]
    assert routed(channel, "x", "other", names) == ["a"]
    assert routed(channel, "z", "y.1", names) == ["a", "b"]
    channel.exchange_unbind("z", "y", "#")
    assert routed(channel, "x", "y.1", names) == ["a"]


def chain(channel: shmbroker.Channel) -> None:
    """Declare x, u and v, each the alternate of the one before, and x that of v."""
    for name, alternate in (("x", "u"), ("u", "v"), ("v", "x")):
        channel.exchange_declare(name, "direct", arguments={"alternate-exchange": alternate})


def test_b30_a_chain_of_alternates(channel: shmbroker.Channel) -> None:
    """What an exchange routes nowhere goes to its alternate, and what that one routes goes no further."""
    names = queues(channel, "a", "b", "c")
    chain(channel)
    for exchange, queue in zip("xuv", names, strict=True):
        channel.queue_bind(queue, exchange, queue)
    channel.queue_bind("b", "u", "both")
    channel.queue_bind("c", "v", "both")
    assert routed(channel, "x", "a", names) == ["a"]
    assert routed(channel, "x", "b", names) == ["b"]
    assert routed(channel, "x", "c", names) == ["c"]
    assert routed(channel, "x", "both", names) == ["b"]
    assert routed(channel, "v", "a", names) == ["a"]


def test_b30_a_cycle_of_alternates_ends(connection: shmbroker.Connection) -> None:
    """With a key that fits nowhere the search ends; mandatory is returned only then."""
    channel = connection.channel()
    names = queues(channel, "c")
    chain(channel)
    channel.queue_bind("c", "v", "c")
    returned = Returned(channel)
    assert routed(channel, "x", "nowhere", names) == []
    assert routed(channel, "x", "c", names, mandatory=True) == ["c"]
    channel.basic_publish("x", "nowhere", b"A", mandatory=True)
    assert returned.wait(1) == [(312, "NO_ROUTE", "x", "nowhere", b"A")]
    Rounds(connection).go()
    assert len(returned.returns) == 1


def test_b30_an_alternate_that_is_missing(channel: shmbroker.Channel) -> None:
    """An alternate exchange need not exist: then what is unroutable is dropped, or returned. Later it may come."""
    names = queues(channel, "q")
    channel.exchange_declare("x", "direct", arguments={"alternate-exchange": "later"})
    returned = Returned(channel)
    assert routed(channel, "x", "k", names) == []
    channel.basic_publish("x", "k", b"A", mandatory=True)
    returned.wait(1)
    channel.exchange_declare("later", "fanout")
    channel.queue_bind("q", "later")
    assert routed(channel, "x", "k", names, mandatory=True) == ["q"]
    assert len(returned.returns) == 1


@pytest.mark.parametrize("operation", ["bind", "unbind", "exchange bind to", "exchange bind from", "declare", "delete"])
def test_b31_the_default_exchange_is_nobodys(connection: shmbroker.Connection, operation: str) -> None:
    """Nothing but a publish is allowed on '': 403."""
    channel = connection.channel()
    channel.queue_declare("q")
    with refused(AccessRefused, DEFAULT_EXCHANGE):
        {
            "bind": lambda: channel.queue_bind("q", "", "k"),
            "unbind": lambda: channel.queue_unbind("q", "", "q"),
            "exchange bind to": lambda: channel.exchange_bind("", "amq.direct", "k"),
            "exchange bind from": lambda: channel.exchange_bind("amq.direct", "", "k"),
            "declare": lambda: channel.exchange_declare("", "direct"),
            "delete": lambda: channel.exchange_delete(""),
        }[operation]()
    assert_closed(channel, because="default exchange")


def test_b31_a_publish_to_a_missing_queue(channel: shmbroker.Channel) -> None:
    """Over '' to a queue that is not there: dropped; with mandatory it comes back with 312, and the content."""
    returned = Returned(channel)
    publish(channel, "missing", "A")
    channel.basic_publish("", "missing", b"B", mandatory=True)
    assert returned.wait(1) == [(312, "NO_ROUTE", "", "missing", b"B")]
    channel.queue_declare("missing")
    assert content(channel, "missing") == []
    channel.basic_publish("", "missing", b"C", mandatory=True)
    assert content(channel, "missing") == ["C"]
    assert channel.is_open
    assert len(returned.returns) == 1


def test_b32_cc_and_bcc_add_keys(channel: shmbroker.Channel) -> None:
    """The queues of all keys get one copy each; BCC is not to be seen by whoever receives it, CC is."""
    names = queues(channel, "a", "b", "c", "d")
    headers = {"CC": ["b", "a"], "BCC": ["c"], "mine": 1}
    channel.basic_publish("", "a", b"A", properties=BasicProperties(headers=headers))
    for name in ("a", "b", "c"):
        message = channel.basic_get(name, auto_ack=True)
        assert message is not None
        assert message.headers == {"CC": ["b", "a"], "mine": 1}
        assert message.routing_key == "a"
    assert [content(channel, name) for name in names] == [[], [], [], []]
    assert headers == {"CC": ["b", "a"], "BCC": ["c"], "mine": 1}


def test_b32_cc_through_an_exchange(channel: shmbroker.Channel) -> None:
    """The added keys are routed like the message's own."""
    names = queues(channel, "a", "b", "c")
    for name in names:
        channel.queue_bind(name, "amq.topic", f"*.{name}")
    properties = BasicProperties(headers={"BCC": ["x.b", "y.b"]})
    assert routed(channel, "amq.topic", "x.a", names, properties=properties) == ["a", "b"]
    assert routed(channel, "amq.topic", "nowhere", names, properties=properties, mandatory=True) == ["b"]


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("value", [5, "b", {"b": 1}])
def test_b32_cc_that_is_no_list(connection: shmbroker.Connection, header: str, value: object) -> None:
    """A CC or BCC header that is no list is refused with 406, and nothing is routed."""
    channel = connection.channel()
    names = queues(channel, "a", "b")
    channel.basic_publish("", "a", b"A", properties=BasicProperties(headers={header: value}))
    with refused(PreconditionFailed):
        channel.queue_declare("a")
    with connection.channel() as again:
        assert [content(again, name) for name in names] == [[], []]


def test_b33_nobody_publishes_to_an_internal_exchange(connection: shmbroker.Connection) -> None:
    """It is refused with 403; through a binding from another exchange messages do come."""
    channel = connection.channel()
    names = queues(channel, "q")
    channel.exchange_declare("x", "fanout", internal=True)
    channel.exchange_bind("x", "amq.fanout")
    channel.queue_bind("q", "x")
    assert routed(channel, "amq.fanout", "", names) == ["q"]
    channel.basic_publish("x", "", b"A")
    with refused(AccessRefused, "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'"):
        channel.queue_declare("q")
    assert_closed(channel, because="internal exchange 'x'")
    with connection.channel() as again:
        assert content(again, "q") == []


def test_b34_an_auto_delete_exchange_goes_with_its_last_binding(connection: shmbroker.Connection) -> None:
    """It stays while it never had a binding, or has one; it vanishes on the last unbind."""
    channel = connection.channel()
    queues(channel, "q")
    channel.exchange_declare("x", "direct", auto_delete=True)
    assert exists(connection, exchange="x")
    channel.queue_bind("q", "x", "a")
    channel.queue_bind("q", "x", "b")
    channel.queue_unbind("q", "x", "a")
    assert exists(connection, exchange="x")
    channel.queue_unbind("q", "x", "b")
    with refused(NotFound, "NOT_FOUND - no exchange 'x' in vhost '/'"):
        channel.exchange_declare("x", passive=True)


@pytest.mark.parametrize("end", ["queue deleted", "destination deleted", "queue auto-deleted", "exchange unbound"])
def test_b34_an_auto_delete_exchange_goes_with_what_is_bound_to_it(connection: shmbroker.Connection, end: str) -> None:
    """It vanishes when the last queue or exchange bound to it is deleted, whyever."""
    channel = connection.channel()
    channel.queue_declare("q", auto_delete=True)
    channel.exchange_declare("destination", "fanout")
    channel.exchange_declare("x", "direct", auto_delete=True)
    if end.startswith("queue"):
        channel.queue_bind("q", "x", "k")
    else:
        channel.exchange_bind("destination", "x", "k")
    assert exists(connection, exchange="x")
    if end == "queue deleted":
        channel.queue_delete("q")
    elif end == "queue auto-deleted":
        channel.basic_cancel(channel.basic_consume("q", lambda *_: None))
    elif end == "destination deleted":
        channel.exchange_delete("destination")
    else:
        channel.exchange_unbind("destination", "x", "k")
    assert not exists(connection, exchange="x")


def test_b34_deleting_an_exchange_removes_its_bindings(channel: shmbroker.Channel) -> None:
    """Declared anew it has none."""
    names = queues(channel, "q")
    channel.exchange_declare("x", "fanout")
    channel.queue_bind("q", "x")
    channel.exchange_delete("x")
    channel.exchange_declare("x", "fanout")
    assert routed(channel, "x", "", names) == []


def test_b34_a_used_exchange_is_not_deleted_if_unused(connection: shmbroker.Connection) -> None:
    """With a binding if_unused is refused with 406; without one it deletes."""
    channel = connection.channel()
    queues(channel, "q")
    channel.exchange_declare("x", "fanout")
    channel.queue_bind("q", "x")
    with refused(PreconditionFailed, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"):
        channel.exchange_delete("x", if_unused=True)
    with connection.channel() as again:
        again.queue_unbind("q", "x")
        again.exchange_delete("x", if_unused=True)
    assert not exists(connection, exchange="x")


def test_b34_errors_of_exchanges_are_the_brokers(channel: shmbroker.Channel) -> None:
    """Each is a BrokerError with code and text."""
    with pytest.raises(BrokerError) as caught:
        channel.exchange_declare("missing", passive=True)
    assert caught.value.args == (404, "NOT_FOUND - no exchange 'missing' in vhost '/'")
