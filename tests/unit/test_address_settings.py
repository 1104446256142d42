# SPDX-License-Identifier: Apache-2.0
"""Address settings of a connection: what is refused, what new queues take, and what queues that exist take."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import refused
from scenario_support.inside import core_of, session_of

import shmbroker
from shmbroker._core.journal import topology_lock
from shmbroker._topology import addresses
from shmbroker.exceptions import NotFound, OutOfMemory, PreconditionFailed, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable


def settings_of(connection: shmbroker.Connection, queue: str) -> shmbroker.QueueSettings:
    """Return the settings that an existing queue has."""
    return connection.queue(queue, passive=True).settings


# ---- bad input ----


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"default_ring_size": 0}, "default_ring_size=0: -1 (no limit) or an integer from 1"),
        ({"default_ring_size": "5"}, "default_ring_size='5'"),
        ({"default_ring_size": True}, "default_ring_size=True"),
        ({"default_max_bytes": "12X"}, "default_max_bytes='12X'"),
        (
            {"default_overflow": "no"},
            "default_overflow='no': one of block, drop, drop-head, reject-publish, reject-publish-dlx, page is allowed",
        ),
        ({"default_durable": 1}, "default_durable=1: True or False is allowed"),
        ({"auto_create_queues": "yes"}, "auto_create_queues='yes': True or False is allowed"),
        ({"auto_delete_queues_delay": -1}, "auto_delete_queues_delay=-1: 0 to 315360000 seconds, or None, are allowed"),
        ({"default_dead_letter_exchange": "x" * 256}, "default_dead_letter_exchange="),
        ({}, "give at least one setting; there are default_ring_size,"),
    ],
)
def test_a_bad_value_is_refused(connection: shmbroker.Connection, given: dict[str, Any], text: str) -> None:
    """The error names the setting, the value and what is allowed; nothing is stored."""
    with pytest.raises(ValueError, match=r"allowed|give at least one") as refusal:
        connection.settings.set("a", **given)
    assert text in str(refusal.value)
    assert connection.settings.list() == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"default_sort_key": "k", "default_max_priority": 3},
            "sort_key='k', max_priority=3: only one of them may be set",
        ),
        ({"default_ring_size": 3, "default_overflow": "reject-publish"}, "a ring makes room for each message"),
        ({"default_overflow": "block", "default_max_bytes": 0}, "overflow='block', max_bytes=0: a put would wait"),
        ({"default_min_expiry_delay": 2, "default_max_expiry_delay": 1}, "must not be longer than the second"),
    ],
)
def test_a_match_does_not_contradict_itself(connection: shmbroker.Connection, given: dict[str, Any], text: str) -> None:
    """No queue could be made with these values of one match, whether they come together or one by one."""
    with pytest.raises(ValueError, match=re.escape("match='a.#': ")) as refusal:
        connection.settings.set("a.#", **given)
    assert text in str(refusal.value)
    first, second = given.items()
    connection.settings.set("a.#", **dict([first]))
    with pytest.raises(ValueError, match=re.escape("match='a.#': ")):
        connection.settings.set("a.#", **dict([second]))
    assert connection.settings.list() == [("a.#", dict([first]))]


@pytest.mark.parametrize("limit", ["max_length", "max_bytes"])
def test_a_queue_keeps_what_a_change_does_not_go_together_with(connection: shmbroker.Connection, limit: str) -> None:
    """A limit of 0 is for queues that drop or reject; of one that blocks neither it nor its puts change."""
    blocks, drops = connection.queue("live.1", overflow="block"), connection.queue("live.2", overflow="drop")
    connection.settings.set("live.#", **{f"default_{limit}": 0, "default_message_ttl": 60})
    assert (getattr(blocks.settings, limit), blocks.settings.message_ttl) == (-1, 60)
    assert (getattr(drops.settings, limit), drops.settings.message_ttl) == (0, 60)
    for queue in (blocks, drops):
        queue.put(b"x")
    assert (len(blocks), len(drops)) == (1, 0)


def test_half_of_a_pair_is_allowed(connection: shmbroker.Connection) -> None:
    """What another match may complete is no contradiction."""
    for name, value in (
        ("default_max_length", 0),
        ("default_overflow", "reject-publish-dlx"),
        ("default_dead_letter_routing_key", "dead"),
    ):
        connection.settings.set(name, **{name: value})
    assert len(connection.settings.list()) == 3


def test_a_queue_that_gets_two_values_that_do_not_go_together_says_from_where(connection: shmbroker.Connection) -> None:
    """The error names each match that gives one of the values; what was given for the queue is from nowhere else."""
    connection.settings.set("x.#", default_sort_key="k")
    connection.settings.set("x.*", default_max_priority=3)
    both = "only one of them may be set (address settings: sort_key by 'x.#', max_priority by 'x.*')"
    with pytest.raises(ValueError, match=re.escape(f"sort_key='k', max_priority=3: {both}")):
        connection.queue("x.a")
    one = "only one of them may be set (address settings: sort_key by 'x.#')"
    with pytest.raises(ValueError, match=re.escape(f"sort_key='k', max_priority=9: {one}")):
        connection.queue("x.a", max_priority=9)
    with pytest.raises(ValueError, match=r"only one of them may be set$"):
        connection.queue("x.a", sort_key="k", max_priority=9)
    assert connection.queue("x.a", max_priority=0).settings.sort_key == "k"


@pytest.mark.parametrize("name", ["ring_size", "default_exclusive", "nonsense", "default_"])
def test_a_setting_that_does_not_exist_is_refused(connection: shmbroker.Connection, name: str) -> None:
    """The error names the setting, and those that there are, on setting and on removing."""
    for attempt in (lambda: connection.settings.set("a", **{name: 1}), lambda: connection.settings.remove("a", name)):
        with pytest.raises(TypeError, match=f"no address setting '{name}'") as refusal:
            attempt()
        assert "auto_create_queues" in str(refusal.value)


def test_a_queue_setting_is_told_its_name(connection: shmbroker.Connection) -> None:
    """The name of a queue setting, without `default_`, is a mistake that the error recognises."""
    with pytest.raises(TypeError, match=r"did you mean default_ring_size\?"):
        connection.settings.set("a", ring_size=5)


@pytest.mark.parametrize("match", ["x.#.y", "a*", "", "a\0"])
def test_a_bad_match_is_refused(connection: shmbroker.Connection, match: str) -> None:
    """The error names the match, on setting and on removing."""
    with pytest.raises(ValueError, match="match=") as refusal:
        connection.settings.set(match, default_ring_size=5)
    assert repr(match) in str(refusal.value)
    with pytest.raises(ValueError, match="match="):
        connection.settings.remove(match)


def test_a_match_that_gives_nothing_cannot_be_removed(connection: shmbroker.Connection) -> None:
    """The error names the match; the other matches stay."""
    connection.settings.set("a.#", default_ring_size=5)
    with pytest.raises(NotFound, match="no address settings for match 'a'"):
        connection.settings.remove("a")
    assert [one.match for one in connection.settings.list()] == ["a.#"]


@pytest.mark.parametrize("address", ["", "x" * 256, "a\0"])
def test_only_an_address_is_explained(connection: shmbroker.Connection, address: str) -> None:
    """What cannot be the name of a queue has no settings."""
    with pytest.raises(ValueError, match="queue name"):
        connection.settings.explain(address)


# ---- listing and explaining ----


def test_matches_are_listed_the_more_specific_first(connection: shmbroker.Connection) -> None:
    """A list has each match with its settings, in the order in which they decide."""
    for match in ("#", "a.#", "a.*", "a.b"):
        connection.settings.set(match, default_ring_size=len(match))
    found = connection.settings.list()
    assert found == [(match, {"default_ring_size": len(match)}) for match in ("a.b", "a.*", "a.#", "#")]
    assert (found[0].match, found[0].settings) == ("a.b", {"default_ring_size": 3})
    assert repr(connection.settings) == f"<AddressSettings of broker '{connection.broker_name}'>"


def test_explain_names_the_match_of_each_value(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Another connection sees the value of each setting and the match that gives it; None: the default."""
    connection.settings.set("a.#", default_ring_size=5, default_max_length=6)
    connection.settings.set("a.b", default_ring_size=7)
    found = other.settings.explain("a.b")
    assert found["default_ring_size"] == (7, "a.b")
    assert found["default_max_length"] == (6, "a.#")
    assert found["auto_delete_queues"] == (True, None)
    assert (found["auto_create_queues"].value, found["auto_create_queues"].match) == (False, None)


# ---- new queues ----


def test_a_declared_queue_takes_its_address_settings(connection: shmbroker.Connection) -> None:
    """Each kind of setting is taken by a queue that does not give it: numbers, words, times, texts, flags."""
    given = {
        "ring_size": 5, "max_length": 6, "max_bytes": 1024, "overflow": "drop", "message_ttl": 7.5, "expires": 100.0,
        "max_priority": 3, "dead_letter_exchange": "dlx", "dead_letter_routing_key": "k", "max_delivery_attempts": 4,
        "redelivery_delay": 0.5, "redelivery_multiplier": 2.0, "max_redelivery_delay": 9.0, "durable": True,
        "single_active_consumer": True,
    }  # fmt: skip
    connection.settings.set("a.#", **{f"default_{name}": value for name, value in given.items()})
    made = connection.queue("a.b").settings
    assert {name: getattr(made, name) for name in given} == given
    assert connection.queue("b").settings == shmbroker.QueueSettings()


def test_a_declaration_of_a_channel_takes_them(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """The overflow is that of the address, or that of channels if the address gives none; flags are the channel's."""
    connection.settings.set("a.#", default_max_length=6, default_durable=True)
    connection.settings.set("a.b", default_overflow="block")
    for name in ("a.b", "a.c"):
        channel.queue_declare(name)
    first, second = settings_of(connection, "a.b"), settings_of(connection, "a.c")
    assert (first.max_length, first.overflow, first.durable) == (6, "block", False)
    assert (second.max_length, second.overflow) == (6, "drop-head")


def test_a_declaration_repeated_on_a_channel_need_not_give_them(
    channel: shmbroker.Channel, connection: shmbroker.Connection
) -> None:
    """What the address gave is not compared with what the declaration does not give; what it gives is compared."""
    connection.settings.set("#", default_max_length=6, default_dead_letter_exchange="dlx", default_max_priority=4)
    connection.settings.set("#", default_single_active_consumer=True)
    channel.queue_declare("q", arguments={"x-message-ttl": 1000})
    channel.queue_declare("q", arguments={"x-message-ttl": 1000})
    channel.queue_declare("q", arguments={"x-message-ttl": 1000, "x-max-length": 6})
    inequivalent = (
        "PRECONDITION_FAILED - inequivalent arg '{}' for queue 'q' in vhost '/': received {} but current is {}"
    )
    with refused(PreconditionFailed, inequivalent.format("x-max-length", "'7'", "'6'")):
        connection.channel().queue_declare("q", arguments={"x-message-ttl": 1000, "x-max-length": 7})
    with refused(PreconditionFailed, inequivalent.format("x-message-ttl", "none", "'1000'")):
        connection.channel().queue_declare("q")


def test_two_settings_that_do_not_go_together_are_refused_on_a_channel(channel: shmbroker.Channel) -> None:
    """The error is AMQP's, as without address settings."""
    together = "dead_letter_exchange='', dead_letter_routing_key='q': a queue cannot be its own dead-letter queue"
    with refused(PreconditionFailed, f"PRECONDITION_FAILED - queue 'q' in vhost '/': {together}"):
        channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})


# ---- queues that exist ----


def test_a_live_setting_changes_queues_that_exist(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """When `set` returns, each queue that the match covers has the value; after `remove`, what is left for it."""
    for name in ("a.b", "a.c", "b"):
        other.queue(name)
    connection.settings.set("#", default_max_length=5)
    connection.settings.set("a.*", default_max_length=6, default_message_ttl=7.0)
    assert [settings_of(other, name).max_length for name in ("a.b", "a.c", "b")] == [6, 6, 5]
    assert settings_of(other, "a.b").message_ttl == 7.0
    connection.settings.remove("a.*", "default_max_length")
    assert [settings_of(other, name).max_length for name in ("a.b", "a.c", "b")] == [5, 5, 5]
    assert settings_of(other, "a.b").message_ttl == 7.0
    connection.settings.remove("a.*")
    connection.settings.remove("#")
    assert [settings_of(other, name).max_length for name in ("a.b", "a.c", "b")] == [-1, -1, -1]
    assert settings_of(other, "a.b").message_ttl is None


def test_what_was_given_for_a_queue_stays(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A value given by a declaration, an argument or `configure` stays, also if it equals the default."""
    connection.queue("declared", max_length=-1, message_ttl=3.0)
    channel.queue_declare("argument", arguments={"x-max-length": 4})
    connection.queue("configured").configure(max_length=5)
    connection.settings.set("#", default_max_length=9, default_message_ttl=60.0)
    assert [settings_of(connection, name).max_length for name in ("declared", "argument", "configured")] == [-1, 4, 5]
    ttls = [settings_of(connection, name).message_ttl for name in ("declared", "argument", "configured")]
    assert ttls == [3.0, 60.0, 60.0]


def test_a_live_change_leaves_the_rest_of_a_queue(connection: shmbroker.Connection) -> None:
    """Texts, flags, the pause and the messages of the queue stay."""
    queue = connection.queue("q", dead_letter_exchange="dlx", durable=True, ring_size=4)
    queue.put(b"a")
    queue.pause()
    connection.settings.set("q", default_max_length=9)
    found = queue.settings
    assert (found.dead_letter_exchange, found.durable, found.ring_size, found.max_length) == ("dlx", True, 4, 9)
    assert (queue.paused, len(queue)) == (True, 1)


def test_a_default_expiry_counts_from_the_change(connection: shmbroker.Connection) -> None:
    """A queue that was unused for a while does not expire as soon as it gets a default expiry."""
    queue = connection.queue("q")
    before = core_of(queue).facts().used_ns
    connection.settings.set("#", default_expires=3600)
    assert core_of(queue).facts().used_ns > before
    assert queue.settings.expires == 3600.0


def test_internal_queues_are_left_alone(connection: shmbroker.Connection) -> None:
    """The register and the leases of a group keep their settings when `#` gives others."""
    connection.queue("q").put(b"a")
    shmbroker.Group(connection, "q", "readers").attach()
    own = [name for name in connection.queue_names(all=True) if name != "q"]
    before = [settings_of(connection, name) for name in own]
    assert own
    connection.settings.set("#", default_max_length=1, default_message_ttl=1.0)
    assert [settings_of(connection, name) for name in own] == before


@pytest.mark.parametrize("error", [Timeout("held"), OutOfMemory("full")])
def test_what_cannot_be_applied_now_is_left_to_the_housekeeper(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The change is in effect, so the call succeeds."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(addresses, "apply", fails)
    connection.settings.set("q", default_max_length=5)
    assert connection.settings.explain("q")["default_max_length"] == (5, "q")


def test_a_change_waits_for_the_topology_lock(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Without the lock in time nothing is changed; the error names the holder."""
    core = core_of(connection)
    with broker.connect(operation_timeout=0) as hasty, topology_lock(core, 1 << 62, "test"):
        found: list[BaseException] = []
        in_a_thread(lambda: hasty.settings.set("q", default_max_length=5), found)
    assert [type(one) for one in found] == [Timeout]
    assert connection.settings.list() == []


def in_a_thread(call: Callable[[], object], found: list[BaseException]) -> None:
    """Call in another thread: the lock is that of a thread. Note the error that it raises."""

    def attempt() -> None:
        try:
            call()
        except Timeout as error:
            found.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()


def test_a_queue_that_is_deleted_meanwhile_is_skipped(
    connection: shmbroker.Connection, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that ends before its turn hinders no other one."""
    for name in ("a", "b", "c"):
        connection.queue(name)
    core, opened = core_of(connection), session_of(connection).queues.routed
    seen = []

    def gone(name: str) -> Any:  # noqa: ANN401
        queue = opened(name)
        seen.append(name)
        if len(seen) == 1:
            other.queue(name).delete()
        return queue

    monkeypatch.setattr(addresses, "apply", lambda *_: None)
    connection.settings.set("#", default_max_length=5)
    monkeypatch.undo()
    addresses.apply(core, gone, 1 << 62)
    left = [name for name in ("a", "b", "c") if name != seen[0]]
    assert [settings_of(connection, name).max_length for name in left] == [5, 5]
