# SPDX-License-Identifier: Apache-2.0
"""Exchanges, bindings and address settings that survive a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shmbroker import exceptions
from shmbroker._storekeeper.stored_topology import StoredTopology

if TYPE_CHECKING:
    from tests.unit.storage.conftest import Stored


def restarted(stored: Stored) -> None:
    """A turn, and the loss of the memory."""
    stored.keeper.turn()
    stored.restart()


def test_durable_exchanges_and_bindings_survive(stored: Stored) -> None:
    """A message takes the same way as before: by topic, by headers, from exchange to exchange."""
    channel = stored.connection.channel()
    for name, kind in (("t", "topic"), ("h", "headers"), ("f", "fanout")):
        channel.exchange_declare(name, kind, durable=True)
    for name in ("one", "two", "three"):
        channel.queue_declare(name, durable=True)
    channel.queue_bind("one", "t", "a.*")
    channel.queue_bind("two", "h", arguments={"x-match": "all", "k": 1})
    channel.exchange_bind("f", "t", "a.#")
    channel.queue_bind("three", "f")
    channel.queue_bind("one", "amq.direct", "key")
    restarted(stored)
    channel = stored.connection.channel()
    channel.basic_publish("t", "a.b", b"1")
    channel.basic_publish("t", "a", b"2")
    channel.basic_publish("amq.direct", "key", b"3")
    found = {
        name: [bytes(m) for m in stored.connection.queue(name, passive=True).browse()] for name in ("one", "three")
    }
    assert found == {"one": [b"1", b"3"], "three": [b"1", b"2"]}
    bindings = {(one.source, one.destination, one.routing_key) for one in stored.connection.bindings()}
    assert ("h", "two", "two") in bindings
    channel.exchange_declare("t", "topic", durable=True)


def test_what_is_not_durable_ends(stored: Stored) -> None:
    """Exchanges, and bindings of which one end is not durable."""
    channel = stored.connection.channel()
    channel.exchange_declare("kept", "fanout", durable=True)
    channel.exchange_declare("lost", "fanout")
    channel.queue_declare("kept", durable=True)
    channel.queue_declare("lost")
    for queue in ("kept", "lost"):
        for exchange in ("kept", "lost"):
            channel.queue_bind(queue, exchange)
    restarted(stored)
    bindings = {(one.source, one.destination) for one in stored.connection.bindings() if one.source}
    assert bindings == {("kept", "kept")}
    with pytest.raises(exceptions.NotFound):
        stored.connection.channel().exchange_declare("lost", passive=True)


def test_changes_of_the_topology_survive(stored: Stored) -> None:
    """What is removed does not come back, whether the queue or only the binding is gone."""
    channel = stored.connection.channel()
    channel.exchange_declare("x", "direct", durable=True)
    channel.exchange_declare("gone", "direct", durable=True)
    for name in ("one", "two"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "x", name)
        channel.queue_bind(name, "x", "both")
    restarted(stored)
    channel = stored.connection.channel()
    channel.queue_unbind("one", "x", "one")
    channel.exchange_delete("gone")
    channel.queue_delete("two")
    channel.queue_declare("two", durable=True)
    restarted(stored)
    bindings = [(one.destination, one.routing_key) for one in stored.connection.bindings() if one.source == "x"]
    assert bindings == [("one", "both")]
    names = [one.name for one in stored.connection.exchanges()]
    assert [name for name in names if name and not name.startswith("amq.")] == ["x"]


def test_address_settings_survive(stored: Stored) -> None:
    """Queues that are made after the restart take them."""
    stored.connection.settings.set("jobs.#", default_ring_size=5, default_max_length=9)
    restarted(stored)
    listed = stored.connection.settings.list()
    assert [(one.match, one.settings) for one in listed] == [
        ("jobs.#", {"default_ring_size": 5, "default_max_length": 9})
    ]
    assert stored.connection.queue("jobs.new").settings.ring_size == 5


def test_a_binding_that_is_made_during_a_turn(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue was made after the turn looked which queues there are: the next turn writes the binding."""
    channel = stored.connection.channel()
    channel.exchange_declare("x", "fanout", durable=True)
    real = StoredTopology.changed

    def bound_meanwhile(*given: object) -> object:
        monkeypatch.setattr(StoredTopology, "changed", real)
        channel.queue_declare("late", durable=True)
        channel.queue_bind("late", "x")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredTopology, "changed", bound_meanwhile)
    stored.keeper.turn()
    stored.keeper.turn()
    stored.restart()
    stored.connection.channel().basic_publish("x", "", b"1")
    assert len(stored.connection.queue("late", passive=True)) == 1
