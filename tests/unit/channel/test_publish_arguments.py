# SPDX-License-Identifier: Apache-2.0
"""The arguments of basic_publish: the ways to give them, and what is refused, on a known route as on a new one."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import content

from shmbroker import BasicProperties

if TYPE_CHECKING:
    import shmbroker

GIVEN: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "by position": (("", "q", b"A"), {}),
    "all by position": (("", "q", b"A", BasicProperties(app_id="a"), False), {}),
    "by name": ((), {"body": b"A", "routing_key": "q", "exchange": ""}),
    "all by name": (
        (), {"body": b"A", "routing_key": "q", "exchange": "", "properties": None, "mandatory": True, "timeout": 0},
    ),
    "mixed": (("", "q"), {"timeout": 7.5, "body": b"A"}),
    "another body": (("", "q", bytearray(b"A")), {"mandatory": True}),
}  # fmt: skip


@pytest.mark.parametrize("given", GIVEN)
def test_ways_to_give_them(channel: shmbroker.Channel, given: str) -> None:
    """Each way publishes, at the first time and later; without confirms there is no number."""
    positional, named = GIVEN[given]
    channel.queue_declare("q")
    for _ in range(3):
        assert channel.basic_publish(*positional, **named) is None
    assert content(channel, "q") == ["A"] * 3


WRONG: dict[str, tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = {
    "none": (TypeError, "missing a required argument: 'exchange'", (), {}),
    "no body": (TypeError, "missing a required argument: 'body'", ("", "q"), {"mandatory": True}),
    "too many": (TypeError, "at most 6 positional arguments but 7 were given", ("", "q", b"A", None, False, 1), {}),
    "an unknown one": (TypeError, "unexpected keyword argument 'key'", ("", "q", b"A"), {"key": "q"}),
    "one twice": (TypeError, "multiple values for argument 'body'", ("", "q", b"A"), {"body": b"B"}),
    "a bad timeout": (ValueError, "timeout=-1", ("", "q", b"A"), {"timeout": -1}),
    "a timeout that is no number": (TypeError, "timeout='x': seconds", ("", "q", b"A"), {"timeout": "x"}),
    "the same with properties": (
        TypeError, "timeout=True: seconds", ("", "q", b"A", BasicProperties(timestamp=7)), {"timeout": True},
    ),
    "text": (TypeError, "bytes-like, not str: encode it", ("", "q", "A"), {}),
    "a number as a key": (TypeError, "1", ("", 1, b"A"), {}),
    "no properties": (TypeError, "properties='p': BasicProperties are needed", ("", "q", b"A", "p"), {}),
}  # fmt: skip


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("given", WRONG)
def test_what_is_refused(channel: shmbroker.Channel, given: str, *, warm: bool) -> None:
    """The error names it; nothing is published."""
    error, text, positional, named = WRONG[given]
    channel.queue_declare("q")
    for _ in range(2 if warm else 0):
        channel.basic_publish("", "q", b"before")
    with pytest.raises(error, match=text):
        channel.basic_publish(*positional, **named)
    assert content(channel, "q") == ["before"] * (2 if warm else 0)


OF_PYTHON = {"none", "no body", "too many", "an unknown one", "one twice"}  # as for each function of Python


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("given", sorted(WRONG.keys() - OF_PYTHON))
def test_what_is_refused_with_a_future(channel: shmbroker.Channel, given: str, *, warm: bool) -> None:
    """The same: the error is raised, and nothing is published."""
    error, text, positional, named = WRONG[given]
    channel.queue_declare("q")
    for _ in range(2 if warm else 0):
        channel.publish_confirmed("", "q", b"before")
    with pytest.raises(error, match=text):
        channel.publish_confirmed(*positional, **named)
    assert content(channel, "q") == ["before"] * (2 if warm else 0)


def test_a_closed_channel_is_freed(connection: shmbroker.Connection) -> None:
    """The channel and what it publishes with refer to each other; the garbage collector frees both."""
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    assert [channel.basic_publish("", "q", b"A") for _ in range(2)] == [1, 2]
    channel._number = functools.partial(id, channel)  # type: ignore[assignment]  # noqa: SLF001 - leads back to it
    channel.close()
    gone = weakref.ref(channel)
    del channel
    gc.collect()
    assert gone() is None
