# SPDX-License-Identifier: Apache-2.0
"""What a connection declares and deletes for its channels: names, comparisons, and what is removed on the way."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from scenario_support.channels import refused
from scenario_support.core_calls import Noted, answering
from scenario_support.inside import core_of, session_of

import shmbroker
from shmbroker._topology import administration
from shmbroker._topology.administration import clean_name
from shmbroker._topology.binding import ToQueue
from shmbroker.exceptions import AccessRefused, NotFound, PreconditionFailed


def test_names_of_255_bytes() -> None:
    """Line ends do not count: they are dropped."""
    for name in ("", "x" * 255, "\u00e9" * 127 + "x"):
        assert clean_name(name, "queue") == name
    assert clean_name("\r\na\rb\n" + "x" * 253, "queue") == "ab" + "x" * 253


@pytest.mark.parametrize(
    "name", ["x" * 256, "\u00e9" * 128, "a\0b", "\ud800"], ids=["ASCII", "UTF-8", "NUL", "no text"]
)
def test_names_that_are_not_allowed(name: str) -> None:
    """A ValueError says what is allowed."""
    with pytest.raises(ValueError, match="at most 255 bytes of UTF-8 without NUL are allowed"):
        clean_name(name, "queue")


def test_a_queue_that_the_broker_named_can_be_declared_again(channel: shmbroker.Channel) -> None:
    """Its name is reserved for new queues only."""
    name = channel.queue_declare().queue
    assert channel.queue_declare(name) == (name, 0, 0)
    with refused(AccessRefused):
        channel.queue_declare("amq.gen-other")


def test_a_name_that_is_taken_is_not_given_again(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is made up."""
    first = channel.queue_declare().queue
    monkeypatch.setattr(administration, "generated_name", answering(administration.generated_name, first))
    channel.basic_publish("", first, b"A")
    assert channel.queue_declare().message_count == 0


def test_a_passive_declaration_looks_at_no_arguments(channel: shmbroker.Channel) -> None:
    """Only at the name."""
    channel.queue_declare("q", arguments={"x-max-length": 5})
    assert channel.queue_declare("q", passive=True, arguments={"x-max-length": "five"}) == ("q", 0, 0)


def test_a_queue_that_ends_while_it_is_declared(
    channel: shmbroker.Channel, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made anew; a passive declaration does not find it."""
    admin = session_of(channel).administration
    channel.queue_declare("q")
    found = admin.queue

    def gone(name: str) -> Any:  # noqa: ANN401
        monkeypatch.undo()
        opened = found(name)
        other.queue(name).delete()
        return opened

    monkeypatch.setattr(admin, "queue", gone)
    assert channel.queue_declare("q") == ("q", 0, 0)
    monkeypatch.setattr(admin, "queue", gone)
    with refused(NotFound, "NOT_FOUND - no queue 'q' in vhost '/'"):
        channel.queue_declare("q", passive=True)


@pytest.mark.parametrize("passive", [False, True])
def test_a_declaration_is_a_use(
    channel: shmbroker.Channel,
    monkeypatch: pytest.MonkeyPatch,
    passive: bool,  # noqa: FBT001
) -> None:
    """The time of a queue that expires begins anew."""
    channel.queue_declare("q")
    core = session_of(channel).core
    touched = Noted(core.touch)
    monkeypatch.setattr(core, "touch", touched)
    channel.queue_declare("q", passive=passive)
    assert touched.calls == [(core.queue_slot("q"),)]


@pytest.mark.parametrize(
    "arguments", [{"x-overflow": "drop-head"}, {"x-overflow": "block", "x-message-ttl": 11}, {"x-overflow": "block"}]
)
def test_a_declaration_that_differs(channel: shmbroker.Channel, arguments: dict[str, Any]) -> None:
    """An overflow that is named is compared, and so is a life in milliseconds; one that is not named may be any."""
    channel.queue_declare("q", arguments={"x-overflow": "block", "x-message-ttl": 10})
    assert channel.queue_declare("q", arguments={"x-message-ttl": 10}).queue == "q"
    with refused(PreconditionFailed):
        channel.queue_declare("q", arguments=arguments)


@pytest.mark.parametrize("use", ["declare", "passive", "delete", "exchanges", "bindings"])
def test_bindings_of_queues_that_ended_are_removed_first(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """With them goes an exchange that ends with its last binding."""
    admin, channel = session_of(connection).administration, connection.channel()
    prune = Noted(admin.exchanges.prune)
    monkeypatch.setattr(admin.exchanges, "prune", prune)
    {
        "declare": lambda: channel.exchange_declare("x"),
        "passive": lambda: channel.exchange_declare("amq.direct", passive=True),
        "delete": lambda: channel.exchange_delete("x"),
        "exchanges": connection.exchanges,
        "bindings": connection.bindings,
    }[use]()
    assert [core for core, _ in prune.calls] == [core_of(connection)]


def test_a_deleted_queue_leaves_no_binding(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever deletes it removes them; where there is none, the topology is not changed."""
    admin, channel = session_of(connection).administration, connection.channel()
    queue = connection.queue("q")
    to = ToQueue("q", core_of(queue).incarnation)
    channel.queue_bind("q", "amq.fanout")
    assert len(admin.exchanges.refresh(core_of(connection)).bindings_to(to)) == 1
    change = Noted(admin.exchanges.change)
    monkeypatch.setattr(admin.exchanges, "change", change)
    queue.delete()
    assert len(change.calls) == 1
    assert len(admin.exchanges.refresh(core_of(connection)).bindings_to(to)) == 0
    connection.queue("q").delete()
    assert len(change.calls) == 1


@pytest.mark.parametrize("by", ["queue", "channel"])
@pytest.mark.parametrize("ends", ["killed", "interrupted"])
def test_a_deleter_that_ends_before_the_bindings(
    connection: shmbroker.Connection, broker_name: str, monkeypatch: pytest.MonkeyPatch, by: str, ends: str
) -> None:
    """The queue is gone, its bindings are not: they are gone after the next change of the topology, by whomever."""
    connection.queue("q")
    connection.channel().queue_bind("q", "amq.fanout")

    def end(*_: object) -> None:
        if ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyboardInterrupt

    def delete() -> None:
        with shmbroker.connect(broker_name) as other, monkeypatch.context() as patched:
            patched.setattr(session_of(other).administration.exchanges, "change", end)
            if by == "queue":
                other.queue("q").delete()
            else:
                other.channel().queue_delete("q")

    if ends == "killed":
        child = os.fork()
        if child == 0:
            try:
                delete()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    else:
        with pytest.raises(KeyboardInterrupt):
            delete()
    assert core_of(connection).queue_slot("q") == 0
    connection.channel().queue_declare("another")
    assert connection.bindings() == []


def test_an_operation_has_one_deadline(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind, and a delete, wait for both of their locks until the same moment."""
    admin = session_of(channel).administration
    channel.queue_declare("q")
    moments = Noted(admin._deadline)  # noqa: SLF001
    monkeypatch.setattr(admin, "_deadline", moments)
    channel.queue_bind("q", "amq.fanout")
    assert len(moments.calls) == 1
    channel.queue_delete("q")
    assert len(moments.calls) == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda channel: channel.queue_unbind("missing", "", "k"),
        lambda channel: channel.queue_bind("missing", "", "k"),
        lambda channel: channel.queue_unbind("q", "", "k"),
    ],
    ids=["unbind missing", "bind missing", "unbind"],
)
def test_the_default_exchange_is_refused_before_the_queue_is_looked_for(channel: shmbroker.Channel, use: Any) -> None:  # noqa: ANN401
    """403, whether there is such a queue or not."""
    channel.queue_declare("q")
    with refused(AccessRefused, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        use(channel)


def test_queues_that_are_named_like_exchanges(connection: shmbroker.Connection) -> None:
    """The bindings to a queue are not counted as those to the exchange of its name."""
    channel = connection.channel()
    channel.queue_declare("x")
    channel.exchange_declare("x", "fanout")
    channel.queue_bind("x", "x")
    (found,) = (one for one in connection.exchanges() if one.name == "x")
    assert (found.bindings_in, found.bindings_out) == (0, 1)


def test_keys_of_bindings(channel: shmbroker.Channel, connection: shmbroker.Connection) -> None:
    """No key is the name of the queue; an empty one is it only together with an empty name of the queue."""
    channel.queue_declare("q")

    def keys() -> list[str]:
        return [one.routing_key for one in connection.bindings("amq.direct")]

    for queue, key, expected in (("q", None, "q"), ("", None, "q"), ("", "", "q"), ("q", "", ""), ("", "k", "k")):
        channel.queue_bind(queue, "amq.direct", key)
        assert keys() == [expected]
        channel.queue_bind("q", "amq.direct", "other")
        channel.queue_unbind(queue, "amq.direct", key)
        assert keys() == ["other"]
        channel.queue_unbind("q", "amq.direct", "other")


def test_no_queue_was_declared_yet(channel: shmbroker.Channel) -> None:
    """An empty name is 404."""
    with refused(NotFound, "NOT_FOUND - no previously declared queue"):
        channel._named("")  # noqa: SLF001
    with pytest.raises(TypeError, match="exchange_type=5: a string is needed"):
        channel.exchange_declare("x", 5)  # type: ignore[arg-type] # that is the point
