# SPDX-License-Identifier: Apache-2.0
"""Properties of the usual kinds, which compiled code encodes, beside all others: what arrives is the same."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import gc
import inspect
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmbroker import BasicProperties, properties
from shmbroker._core import native
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

# Hypothesis draws strings of the package's text, too: CC and BCC name further queues, and WRONG has them below.
NAME = (
    st.text(max_size=128)
    .filter(lambda text: len(text.encode(errors="replace")) <= 128 and text.isprintable())
    .filter(lambda text: text not in {"CC", "BCC"})
)
VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(-70_000, 70_000), st.floats(),
    st.binary(max_size=300), st.text(max_size=300).filter(str.isprintable), st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
TEXT = st.text(max_size=255).filter(lambda text: len(text.encode(errors="replace")) <= 255 and text.isprintable())
ANY = st.builds(
    BasicProperties,
    content_type=st.none() | TEXT,
    content_encoding=st.none() | TEXT,
    headers=st.none() | st.dictionaries(NAME, VALUE, max_size=4),
    delivery_mode=st.none() | st.sampled_from((1, 2)),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    expiration=st.none() | st.integers(60_000, 315_360_000_000).map(str),
    message_id=st.none() | TEXT,
    timestamp=st.none() | st.just(7),
    type=st.none() | TEXT,
    app_id=st.none() | TEXT,
    cluster_id=st.none() | TEXT,
)


def by_put(_: shmbroker.Channel, queue: shmbroker.Queue, given: BasicProperties) -> None:
    """Puts a message by the call that compiled code may serve alone."""
    queue.put(b"A", properties=given)


def by_put_many(_: shmbroker.Channel, queue: shmbroker.Queue, given: BasicProperties) -> None:
    """Puts a message whose properties Python encodes."""
    queue.put_many([b"A"], properties=given)


def by_publish(channel: shmbroker.Channel, _: shmbroker.Queue, given: BasicProperties) -> None:
    """Publishes by the call that compiled code may serve alone."""
    channel.basic_publish("", "q", b"A", given)


WAYS: list[Callable[[shmbroker.Channel, shmbroker.Queue, BasicProperties], None]] = [by_put, by_put_many, by_publish]


@pytest.fixture
def known(channel: shmbroker.Channel) -> shmbroker.Channel:
    """A channel that knows the route to the queue ``q``."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"")
    channel.queue_purge("q")
    return channel


def encoded(message: shmbroker.Message) -> bytes:
    """The properties of a message as shared memory holds them."""
    header = message._fields
    start = header.key_start + header.key_length
    return message._record[start : start + header.properties_length]  # noqa: SLF001


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(given=ANY)
@pytest.mark.usefixtures("broker")
def test_each_way_keeps_the_same(
    known: shmbroker.Channel, connection: shmbroker.Connection, given: BasicProperties
) -> None:
    """The same properties, the same priority and the same end of life, whichever code encoded them."""
    queue = connection.queue("q")
    for way in WAYS:
        way(known, queue, given)
    first, *others = [queue.get(timeout=0) for _ in WAYS]
    for message in (first, *others):
        assert encoded(message) == properties.encode(given)
        assert message.priority == (given.priority or 0)
    for other in others:
        assert (other.expires_at is None) == (first.expires_at is None) == (given.expiration is None)
        if given.expiration is not None:
            assert other.expires_at == pytest.approx(first.expires_at, abs=600)
            assert first.timestamp + int(given.expiration) / 1000 == pytest.approx(first.expires_at, abs=600)
    for message in (first, *others):
        message.ack()


EDGES = [sign * 2**power + beside for power in (7, 8, 15, 16, 31, 32, 63) for sign in (1, -1) for beside in (-1, 0, 1)]


@pytest.mark.parametrize("number", [number for number in EDGES if -(2**63) <= number < 2**63])
def test_integers_at_the_edges_of_their_types(
    known: shmbroker.Channel, connection: shmbroker.Connection, number: int
) -> None:
    """A header that is an integer has the shortest type that holds it, whichever code encoded it."""
    given = BasicProperties(headers={"n": number, "last": "x"})
    for way in WAYS:
        way(known, connection.queue("q"), given)
        message = connection.queue("q").get(timeout=0)
        assert encoded(message) == properties.encode(given)
        message.ack()


def test_a_keyword_takes_precedence(known: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """A priority beside properties that have another one."""
    queue = connection.queue("q")
    known.basic_publish("", "q", b"")
    queue.get(timeout=0).ack()
    queue.put(b"A", properties=BasicProperties(priority=3, app_id="a"), priority=5)
    message = queue.get(timeout=0)
    assert (message.priority, message.properties) == (5, BasicProperties(priority=5, app_id="a"))


@pytest.mark.parametrize("way", WAYS)
def test_no_time_is_the_shortest_time(
    known: shmbroker.Channel, connection: shmbroker.Connection, way: Callable[..., None]
) -> None:
    """The expiration 0 does not mean for ever: the message has expired when it is looked for."""
    queue = connection.queue("q")
    way(known, queue, BasicProperties(expiration="0"))
    assert known.basic_get("q") is None
    assert queue.statistics().expired == 1


class Computed(BasicProperties):
    """Properties that are computed when they are read."""

    __slots__ = ()

    @property
    def app_id(self) -> str:  # type: ignore[override]
        """Another one than the constructor got."""
        return "computed"


class Text(str):
    """A string of the application."""

    __slots__ = ()


class Truth(enum.IntEnum):
    """A number of the application."""

    YES = 1


MANY = {f"header {number}": "x" * 1000 for number in range(20)}
STRANGE: dict[str, tuple[BasicProperties, dict[str, Any]]] = {
    "a subclass": (Computed(app_id="given"), {"app_id": "computed"}),
    "a string of a subclass": (BasicProperties(app_id=Text("a")), {"app_id": "a"}),
    "headers": (BasicProperties(headers={"a": [1]}, type="t"), {"headers": {"a": [1]}, "type": "t"}),
    "nothing": (BasicProperties(), {}),
    "no headers": (BasicProperties(headers={}), {"headers": {}}),
    "many headers": (BasicProperties(headers=MANY), {"headers": MANY}),
    "a header of a subclass": (BasicProperties(headers={Text("a"): Text("b")}), {"headers": {"a": "b"}}),
    "a truth that is a number": (BasicProperties(headers={"a": Truth.YES}), {"headers": {"a": 1}}),
    "further queues": (BasicProperties(headers={"CC": []}), {"headers": {"CC": []}}),
    "the longest": (BasicProperties(*["é" * 127 + "e"] * 2), dict.fromkeys(properties.NAMES[:2], "é" * 127 + "e")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", STRANGE)
def test_what_is_not_usual(
    known: shmbroker.Channel, connection: shmbroker.Connection, given: str, way: Callable[..., None]
) -> None:
    """It arrives as well."""
    wanted, expected = STRANGE[given]
    queue = connection.queue("q")
    for _ in range(2):
        way(known, queue, wanted)
        message = queue.get(timeout=0)
        assert message.properties == BasicProperties(**expected)
        message.ack()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a number for a text": ({"type": 1}, "type=1: a string is needed"),
    "a long text": ({"message_id": "é" * 128}, "message_id takes 256 bytes: at most 255"),
    "half a letter": ({"app_id": "\udc80"}, r"app_id='\\udc80'"),
    "a text for a number": ({"delivery_mode": "2"}, "delivery_mode"),
    "a third mode": ({"delivery_mode": 3}, "invalid delivery_mode 3"),
    "a true priority": ({"priority": True}, "priority=True"),
    "a priority beyond": ({"priority": 256}, "priority"),
    "a priority far beyond": ({"priority": 2**70}, "priority"),
    "an expiration in words": ({"expiration": "soon"}, "invalid expiration 'soon': no_integer"),
    "no digits": ({"expiration": ""}, "invalid expiration '': no_integer"),
    "a minus": ({"expiration": "-1"}, "invalid expiration '-1': no_integer"),
    "too long a life": ({"expiration": "315360000001"}, "value_too_big,315360000001"),
    "too many digits": ({"expiration": "0000000000001"}, "value_too_big"),
    "a header's name": ({"headers": {1: "a"}}, "name 1 in a table: a string is needed"),
    "a header's long name": ({"headers": {"x" * 129: "a"}}, "at most 128 bytes"),
    "a copy to no array": ({"headers": {"CC": "q"}}, "unacceptable_type_in_CC_header"),
    "a blind copy to no array": ({"headers": {"BCC": "q"}}, "unacceptable_type_in_BCC_header"),
    "half a letter in a header": ({"headers": {"a": "\udc80"}}, r"header '\\udc80'"),
    "half a letter in a name": ({"headers": {"\udc80": "a"}}, r"header '\\udc80'"),
    "a large number in a header": ({"headers": {"a": 2**63}}, "9223372036854775808"),
    "headers that are none": ({"headers": ["a"]}, r"headers=\['a'\]: a dict is needed"),
    "a strange header": ({"headers": {"a": object}}, "object"),
    "another user": ({"user_id": "nobody at all"}, "user_id property set to 'nobody at all'"),
}


def publish_and_ask(channel: shmbroker.Channel, given: BasicProperties) -> None:
    """Publishes, and asks whether that succeeded: the next method that is answered raises a soft error."""
    channel.basic_publish("", "q", b"A", given)
    channel.queue_declare("q", passive=True)


@pytest.mark.parametrize("given", WRONG)
def test_what_is_refused(connection: shmbroker.Connection, known: shmbroker.Channel, given: str) -> None:
    """The error names the property, on a route that is known as on a new one; the queue gets nothing."""
    wrong, text = WRONG[given]
    with pytest.raises((TypeError, ValueError, PreconditionFailed), match=text):
        publish_and_ask(known, BasicProperties(**wrong))
    assert len(connection.queue("q")) == 0


# ---- the object ----


def test_the_names_are_those_of_the_compiled_base() -> None:
    """In AMQP's order, which is that of the flags."""
    assert native.Properties.__slots__ == properties.NAMES  # type: ignore[attr-defined]
    assert tuple(inspect.signature(BasicProperties).parameters) == properties.NAMES


def test_it_is_a_frozen_dataclass() -> None:
    """It can be compared, hashed, copied, pickled and replaced; it cannot be changed."""
    one = BasicProperties("text/plain", message_id="7", headers={"a": 1})
    for same in (
        copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), dataclasses.replace(one),  # noqa: S301
    ):  # fmt: skip
        assert same == one
        assert type(same) is BasicProperties
    assert dataclasses.replace(one, priority=3) == BasicProperties(
        "text/plain", message_id="7", headers={"a": 1}, priority=3
    )
    assert BasicProperties("a") != BasicProperties("b")
    assert hash(BasicProperties("a")) == hash(BasicProperties("a"))
    assert repr(BasicProperties("a")).startswith("BasicProperties(content_type='a', content_encoding=None, ")
    assert (one.content_type, one.app_id) == ("text/plain", None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.app_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("positional", "named", "text"),
    [
        ((), {"app": "a"}, "unexpected keyword argument 'app'"),
        (("a",), {"content_type": "b"}, "multiple values for argument 'content_type'"),
        ((None,) * 15, {}, "at most 14 arguments, 15 were given"),
    ],
)
def test_wrong_arguments(positional: tuple[Any, ...], named: dict[str, Any], text: str) -> None:
    """The error names them."""
    with pytest.raises(TypeError, match=text):
        BasicProperties(*positional, **named)


def test_keywords_of_a_caller_in_c() -> None:
    """A name that is no string is refused; C may pass it, while Python's own calls do not."""
    call = functools.partial(BasicProperties)
    call.__setstate__((BasicProperties, (), {b"app_id": "a"}, {}))  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="keywords must be strings"):
        call()


def test_names_that_are_made_are_names() -> None:
    """A name need not be the very object that the package has."""
    assert BasicProperties(**dict.fromkeys([f"app{'_'}id"], "a")) == BasicProperties(app_id="a")


def test_the_garbage_collector_frees_a_cycle() -> None:
    """Headers may lead back to the properties that have them."""

    class Marker:
        pass

    headers: dict[str, Any] = {"marker": Marker()}
    headers["self"] = BasicProperties(headers=headers)
    gone = weakref.ref(headers["marker"])
    del headers
    gc.collect()
    assert gone() is None
