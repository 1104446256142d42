# SPDX-License-Identifier: Apache-2.0
"""The properties of a message that is published: what is refused, and what the core is given."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted

from shmbroker import properties as basic
from shmbroker._core import native
from shmbroker._topology import publisher
from shmbroker._topology.publisher import PLAIN, Content
from shmbroker.exceptions import PreconditionFailed
from shmbroker.properties import BasicProperties

if TYPE_CHECKING:
    from shmbroker._core.queue import PutOptions

USER = getpass.getuser()
NOTHING = (None, None, (), b"", (0.0, 0))


def attributes(content: Content) -> tuple[object, ...]:
    """Return all attributes of a content."""
    return content.given, content.headers, content.keys, content.properties, content.options


def fields(options: PutOptions) -> dict[str, Any]:
    """Return the structure that the core is given."""
    found = options.pointer
    taken = {
        name: bytes(native.ffi.buffer(getattr(found, name), getattr(found, f"{name}_length")))
        for name in ("key", "properties", "exchange")
        if getattr(found, name) != native.ffi.NULL
    }
    return {"ttl_ns": found.ttl_ns, "delay_ns": found.delay_ns, "priority": found.priority, **taken}


def test_no_properties() -> None:
    """A message without properties has no limit of its life, priority 0 and no further keys."""
    assert attributes(Content(None)) == attributes(PLAIN) == NOTHING
    plain = {"ttl_ns": 0, "delay_ns": 0, "priority": 0}
    assert fields(PLAIN.put_options("", "")) == plain
    assert fields(PLAIN.put_options("x", "k")) == plain | {"key": b"k", "exchange": b"x"}


@pytest.mark.parametrize("name", ["LOGNAME", "USER", "LNAME", "USERNAME", None])
def test_the_user_is_that_of_the_standard_library(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of four variables that is set and not empty names it; without one, the user of the process does."""
    for other in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(other, "")
    if name is not None:
        monkeypatch.setenv(name, "somebody")
        monkeypatch.setenv("USERNAME", "somebody")
    assert publisher._user.__wrapped__(os.getpid()) == getpass.getuser()  # noqa: SLF001


def test_properties_that_mean_nothing_to_the_broker() -> None:
    """They are encoded, and leave the life and the priority of the message as they are without."""
    given = BasicProperties(content_type="text/plain", delivery_mode=1, user_id=USER)
    assert attributes(Content(given)) == (given, None, (), basic.encode(given), (0.0, 0))


@pytest.mark.parametrize("priority", [0, 1, 254, 255])
@pytest.mark.parametrize("delivery_mode", [None, 1, 2])
def test_priorities_and_modes(priority: int, delivery_mode: int | None) -> None:
    """A priority is 0 to 255, a delivery mode 1 or 2."""
    given = BasicProperties(priority=priority, delivery_mode=delivery_mode)
    content = Content(given)
    assert attributes(content) == (given, None, (), basic.encode(given), (0.0, priority))
    assert fields(content.put_options("x", "k")) == {
        "ttl_ns": 0,
        "delay_ns": 0,
        "priority": priority,
        "key": b"k",
        "properties": basic.encode(given),
        "exchange": b"x",
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"user_id": f"not {USER}"},
            f"user_id property set to 'not {USER}' but authenticated user was '{USER}'",
        ),
        ({"user_id": ""}, f"user_id property set to '' but authenticated user was '{USER}'"),
        ({"delivery_mode": 0}, "invalid delivery_mode 0: 1 or 2 is allowed"),
        ({"delivery_mode": 3}, "invalid delivery_mode 3: 1 or 2 is allowed"),
        ({"priority": -1}, "invalid priority -1: 0 to 255 is allowed"),
        ({"priority": 256}, "invalid priority 256: 0 to 255 is allowed"),
        ({"expiration": "1.5"}, "invalid expiration '1.5': no_integer"),
        ({"headers": {"CC": "b"}}, "unacceptable_type_in_CC_header: 'b' is not an array of strings"),
        ({"headers": {"CC": None}}, "unacceptable_type_in_CC_header: None is not an array of strings"),
        ({"headers": {"CC": ["b", 5]}}, "unacceptable_type_in_CC_header: ['b', 5] is not an array of strings"),
        ({"headers": {"CC": ["b"], "BCC": {}}}, "unacceptable_type_in_BCC_header: {} is not an array of strings"),
    ],
)  # fmt: skip
def test_values_that_are_refused(given: dict[str, Any], text: str) -> None:
    """A value that means something to the broker, and that it does not allow, is a PreconditionFailed that names it."""
    with pytest.raises(PreconditionFailed) as caught:
        Content(BasicProperties(**given))
    assert caught.value.args == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize("priority", ["1", 1.5])
def test_a_priority_that_is_no_integer(priority: object) -> None:
    """It is a TypeError that names the property."""
    with pytest.raises(TypeError, match=f"priority={priority!r}: an integer from 0 to 255 is needed"):
        Content(BasicProperties(priority=priority))  # type: ignore[arg-type] # that is the point


def test_further_keys() -> None:
    """CC and BCC are further keys, those of CC first; receivers see all headers but BCC. The given ones stay."""
    headers = {"CC": ["b", "a"], "mine": 1, "BCC": ("c",)}
    given = BasicProperties(headers=headers, app_id="a")
    content = Content(given)
    shown = BasicProperties(headers={"CC": ["b", "a"], "mine": 1}, app_id="a")
    assert attributes(content) == (given, headers, ("b", "a", "c"), basic.encode(shown), (0.0, 0))
    assert content.headers is headers
    assert headers == {"CC": ["b", "a"], "mine": 1, "BCC": ("c",)}


def test_headers_without_further_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept as they were given; the properties are encoded once."""
    encode = Noted(basic.encode)
    monkeypatch.setattr(basic, "encode", encode)
    headers = {"mine": 1}
    given = BasicProperties(headers=headers)
    content = Content(given)
    assert encode.calls == [(given,)]
    assert attributes(content) == (given, headers, (), basic.encode(given), (0.0, 0))


@pytest.mark.parametrize(("expiration", "ttl_ns"), [(None, 0), ("200", 200_000_000), ("0", 1)])
def test_the_life_of_a_message(expiration: str | None, ttl_ns: int) -> None:
    """It is in nanoseconds; 0 ms is the shortest life. The queue may change it (sb_life.h)."""
    content = Content(BasicProperties(expiration=expiration, priority=3))
    options = fields(content.put_options("x", "k"))
    assert (options["ttl_ns"], options["delay_ns"], options["priority"]) == (ttl_ns, 0, 3)
