# SPDX-License-Identifier: Apache-2.0
"""Exchanges, bindings, queues and acks over two channels, against a plain model of them.

The machine declares, binds, publishes, gets, settles and deletes in any order, what is allowed and what is not. Broker
and model must agree on every result, on the code of every error, and on what lies in the queues.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from scenario_support import channel_model as model
from scenario_support.channels import Returned, content
from scenario_support.observing import texts
from scenario_support.waiting import becomes

from shmbroker import BasicProperties
from shmbroker.exceptions import ChannelClosed, ChannelClosedByBroker, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

T = TypeVar("T")

THOUSAND = settings(
    max_examples=1000,
    stateful_step_count=25,
    deadline=None,
    derandomize=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

NAMES = itertools.count()
CHANNELS = st.integers(0, 1)
QUEUES = st.sampled_from(["a", "a", "b", "b", "c", "", "amq.mine"])
EXCHANGES = st.sampled_from(["x", "x", "y", "y", "z", "amq.topic", "amq.headers", "amq.fanout", ""])
KINDS = st.sampled_from([*model.TYPES, "unheard-of"])
KEYS = st.sampled_from(["", "k", "k.l", "k.l.m", "a", "b"])
PATTERNS = KEYS | st.sampled_from(["#", "*", "k.#", "*.l", "#.l.#"])
DESTINATIONS = st.tuples(st.sampled_from([True, True, False]), QUEUES, EXCHANGES)
HEADERS = st.sampled_from([{}, {"h": 1}, {"h": 2}, {"h": 1, "i": "one"}])
ARGUMENTS = st.sampled_from(
    [{}, {"h": 1}, {"h": None, "i": "one"}, {"h": 1, "i": "one", "x-match": "any"}, {"x-match": "z"}]
)
RARELY = st.sampled_from([False] * 9 + [True])


class ChannelMachine(RuleBasedStateMachine):
    """Does the same over two channels and to the model."""

    connection: shmbroker.Connection

    @initialize()
    def begin(self) -> None:
        """Open the channels. Names are new ones each time: prefixed, but for those that mean something."""
        self.prefix = f"{next(NAMES)}-"
        self.model = model.Model()
        self.bodies = itertools.count()
        self.channels = [self.connection.channel() for _ in range(2)]
        self.states = [model.Channel() for _ in range(2)]
        self.returned = [Returned(channel) for channel in self.channels]
        self.expected_returns: list[list[bytes]] = [[], []]

    def name(self, short: str) -> str:
        """Return the name that this example uses."""
        return short if short == "" or short.startswith("amq.") else self.prefix + short

    def same(self, number: int, expected: Callable[[], T], actual: Callable[[shmbroker.Channel], object]) -> T | None:
        """See that broker and model give the same result, or refuse with the same code, which ends the channel."""
        channel = self.channels[number]
        result, code = outcome(expected)
        if code == 0:
            assert actual(channel) == result
            return result
        with pytest.raises(ChannelClosedByBroker) as caught:
            actual(channel)
        assert caught.value.code == code, caught.value
        with pytest.raises(ChannelClosed):
            channel.queue_purge(self.name("a"))
        self.replace(number)
        return None

    def replace(self, number: int) -> None:
        """Open another channel for one that has ended."""
        assert not self.channels[number].is_open
        self.model.close(self.states[number])
        self.channels[number], self.states[number] = self.connection.channel(), model.Channel()
        self.returned[number], self.expected_returns[number] = Returned(self.channels[number]), []

    # ---- queues ----

    @rule(
        number=CHANNELS,
        queue=QUEUES,
        auto_delete=RARELY,
        exclusive=RARELY,
        max_length=st.sampled_from([model.UNBOUNDED] * 3 + [2]),
    )
    def queue_declare(self, number: int, queue: str, *, auto_delete: bool, exclusive: bool, max_length: int) -> None:
        """Declare a queue, mostly as it is; or have one named."""
        options: dict[str, Any] = {"auto_delete": auto_delete, "exclusive": exclusive}
        arguments = {"x-unknown": number} | ({"x-max-length": max_length} if max_length != model.UNBOUNDED else {})
        name = self.name(queue)
        if name == "":
            name = self.channels[number].queue_declare("", arguments=arguments, **options).queue
            assert name.startswith("amq.gen-")
            self.model.queues[name] = model.Queue(auto_delete, exclusive, max_length)
            self.states[number].last_queue = name
            return
        self.same(
            number,
            lambda: self.model.queue_declare(self.states[number], name, max_length=max_length, **options),
            lambda channel: facts(channel.queue_declare(name, arguments=arguments, **options)),
        )

    @rule(number=CHANNELS, queue=QUEUES)
    def queue_look(self, number: int, queue: str) -> None:
        """Declare a queue passively."""
        name = self.name(queue)
        self.same(
            number,
            lambda: self.model.queue_look(self.states[number], name),
            lambda channel: facts(channel.queue_declare(name, passive=True)),
        )

    @rule(number=CHANNELS, queue=QUEUES, action=st.sampled_from(["purge", "delete", "delete if empty"]))
    def empty(self, number: int, queue: str, action: str) -> None:
        """Purge or delete: one rule, so that it is not too often."""
        name, state = self.name(queue), self.states[number]
        if action == "purge":
            self.same(number, lambda: self.model.queue_purge(state, name), lambda channel: channel.queue_purge(name))
            return
        if_empty = action == "delete if empty"
        self.same(
            number,
            lambda: self.model.queue_delete(state, name, if_empty=if_empty),
            lambda channel: channel.queue_delete(name, if_unused=True, if_empty=if_empty),
        )

    # ---- exchanges and bindings ----

    @rule(
        number=CHANNELS,
        exchange=EXCHANGES,
        kind=KINDS,
        auto_delete=RARELY,
        internal=RARELY,
        alternate=st.sampled_from([None, None, None, "x", "y"]),
    )
    def exchange_declare(
        self, number: int, exchange: str, kind: str, *, auto_delete: bool, internal: bool, alternate: str | None
    ) -> None:
        """Declare an exchange, often unlike it is."""
        name = self.name(exchange)
        options: dict[str, Any] = {"auto_delete": auto_delete, "internal": internal}
        other = None if alternate is None else self.name(alternate)
        arguments = None if other is None else {"alternate-exchange": other}
        if name.startswith("amq."):
            return
        self.same(
            number,
            lambda: self.model.exchange_declare(name, kind, alternate=other, **options),
            lambda channel: nothing(channel.exchange_declare(name, kind, arguments=arguments, **options)),
        )

    @rule(number=CHANNELS, exchange=EXCHANGES, passive=st.booleans(), if_unused=st.booleans())
    def exchange_delete(self, number: int, exchange: str, *, passive: bool, if_unused: bool) -> None:
        """Delete an exchange, or declare it passively."""
        name = self.name(exchange)
        if passive and name:
            self.same(
                number,
                lambda: self.model.exchange_look(name),
                lambda channel: nothing(channel.exchange_declare(name, passive=True)),
            )
        else:
            self.same(
                number,
                lambda: self.model.exchange_delete(name, if_unused=if_unused),
                lambda channel: nothing(channel.exchange_delete(name, if_unused=if_unused)),
            )

    @rule(
        number=CHANNELS,
        source=EXCHANGES,
        destination=DESTINATIONS,
        key=PATTERNS,
        arguments=ARGUMENTS,
        bind=st.sampled_from([True, True, True, False]),
    )
    def bind(
        self,
        number: int,
        source: str,
        destination: tuple[bool, str, str],
        key: str,
        arguments: dict[str, Any],
        *,
        bind: bool,
    ) -> None:
        """Bind or unbind queues and exchanges."""
        to_queue, queue, exchange = destination
        short = queue if to_queue else exchange
        binding = model.Binding(self.name(source), to_queue, self.name(short), key, tuple(sorted(arguments.items())))
        method = ("queue_" if to_queue else "exchange_") + ("bind" if bind else "unbind")
        self.same(
            number,
            lambda: (self.model.bind if bind else self.model.unbind)(self.states[number], binding),
            lambda channel: nothing(
                getattr(channel, method)(binding.destination, binding.source, key, arguments or None)
            ),
        )

    # ---- messages ----

    @rule(
        number=CHANNELS,
        exchange=EXCHANGES,
        key=KEYS,
        headers=HEADERS,
        copies=st.sampled_from([{}] * 6 + [{"CC": ["k"]}, {"BCC": ["k.l", "a"]}, {"CC": 5}]),
        mandatory=st.booleans(),
    )
    def publish(
        self,
        number: int,
        exchange: str,
        key: str,
        headers: dict[str, Any],
        copies: dict[str, Any],
        *,
        mandatory: bool,
    ) -> None:
        """Publish; what is refused is so by the next operation, and what is published before that is ignored."""
        name, body = self.name(exchange), f"b{next(self.bodies)}"
        key = self.name(key) if name == "" and key in ("a", "b") else key
        copies = {header: self.keys(name, keys) for header, keys in copies.items()}
        properties = BasicProperties(headers=headers | copies) if headers or copies else None
        given = name, key, body.encode(), properties, mandatory
        channel, state = self.channels[number], self.states[number]
        routed, code = outcome(lambda: self.model.publish(name, key, body, headers | copies))
        if code:
            channel.basic_publish(*given)
            channel.basic_publish("amq.fanout", "", b"ignored")
            self.same(number, lambda: model.refuse(code), lambda refusing: refusing.queue_declare(self.name("a")))
            return
        confirmed = channel.basic_publish(*given)
        assert confirmed == (None if state.confirms is None else next(state.confirms))
        if mandatory and not routed:
            self.expected_returns[number].append(body.encode())
            becomes(lambda: [back for *_, back in self.returned[number].returns], self.expected_returns[number])

    def keys(self, exchange: str, keys: object) -> object:
        """Return the keys of copies: names of queues for the default exchange."""
        if isinstance(keys, list) and exchange == "":
            return [self.name(key) for key in keys]
        return keys

    @rule(number=CHANNELS, queue=QUEUES, auto_ack=st.sampled_from([False, False, True]))
    def get(self, number: int, queue: str, *, auto_ack: bool) -> None:
        """Get the oldest, or nothing."""
        name = self.name(queue)
        self.same(
            number,
            lambda: self.model.get(self.states[number], name, auto_ack=auto_ack),
            lambda channel: delivered(channel.basic_get(name, auto_ack=auto_ack)),
        )

    @rule(
        number=CHANNELS,
        data=st.data(),
        how=st.sampled_from(["ack", "nack", "drop", "reject"]),
        multiple=st.booleans(),
        unknown=RARELY,
    )
    def settle(self, number: int, data: st.DataObject, how: str, *, multiple: bool, unknown: bool) -> None:
        """Settle one or several of those held; rarely with a tag that nobody gave, or that is settled already."""
        state = self.states[number]
        multiple = multiple and how != "reject"
        tags = [*state.unacked, *([0] if multiple else [])]
        if unknown:
            lowest = min(state.unacked, default=state.tags + 1)
            tags = [*range(1 if multiple else 0, lowest), state.tags + 1]
        if not tags:
            return
        tag = data.draw(st.sampled_from(tags))
        calls: dict[str, Callable[[shmbroker.Channel], object]] = {
            "ack": lambda channel: channel.basic_ack(tag, multiple),
            "nack": lambda channel: channel.basic_nack(tag, multiple),
            "drop": lambda channel: channel.basic_nack(tag, multiple, requeue=False),
            "reject": lambda channel: channel.basic_reject(tag),
        }
        self.same(
            number,
            lambda: self.model.settle(state, tag, multiple=multiple, requeue=how in ("nack", "reject")),
            lambda channel: nothing(calls[how](channel)),
        )

    @rule(number=CHANNELS, what=st.sampled_from(["recover", "confirm", "close"]))
    def change(self, number: int, what: str) -> None:
        """Recover, select confirms, or close the channel and open another."""
        channel, state = self.channels[number], self.states[number]
        if what == "recover":
            channel.basic_recover(requeue=True)
            self.model.close(state)
        elif what == "confirm":
            channel.confirm_delivery()
            state.confirms = state.confirms or itertools.count(1)
        else:
            if state.confirms is not None:
                assert channel.wait_for_confirms(60)
            channel.close()
            self.replace(number)

    # ---- what must hold ----

    @invariant()
    def agree(self) -> None:
        """What lies in the queues is what the model says."""
        for name, queue in self.model.queues.items():
            handle = self.connection.queue(name, passive=True)
            assert texts(handle.browse()) == [entry.body for entry in queue.ready]
            held = sum(one is queue for state in self.states for one, _ in state.unacked.values())
            statistics = handle.statistics()
            assert (statistics.ready, statistics.delivering) == (len(queue.ready), held)

    def teardown(self) -> None:
        """The same queues and exchanges are there, they route as they should, and hold what they should."""
        if not hasattr(self, "model"):
            return
        for number in range(2):
            self.channels[number].close()
            self.model.close(self.states[number])
        with self.connection.channel() as channel:
            self.probe(channel)
            for name, queue in self.model.queues.items():
                assert content(channel, name) == [entry.seen() for entry in queue.ready]
        self.clear()

    def probe(self, channel: shmbroker.Channel) -> None:
        """Publish to every exchange that is there; see which are not."""
        for short in ("x", "y", "z", "amq.topic", "amq.headers", "amq.fanout"):
            name = self.name(short)
            exchange = self.model.exchanges.get(name)
            if exchange is not None and not exchange.internal:
                for key in ("k", "k.l"):
                    channel.basic_publish(name, key, f"probe {key}".encode(), BasicProperties(headers={"h": 1}))
                    self.model.publish(name, key, f"probe {key}", {"h": 1})
            assert self.there(lambda asked, name=name: asked.exchange_declare(name, passive=True)) == (
                exchange is not None
            )

    def there(self, look: Callable[[shmbroker.Channel], object]) -> bool:
        """Ask over a channel of its own."""
        with self.connection.channel() as asked, contextlib.suppress(NotFound):
            look(asked)
            return True
        return False

    def clear(self) -> None:
        """Delete all that this example declared, bindings to the broker's own exchanges included."""
        with self.connection.channel() as channel:
            for name in self.model.queues:
                channel.queue_delete(name)
            for edge in self.model.bindings:
                if not edge.to_queue:
                    channel.exchange_unbind(edge.destination, edge.source, edge.key, dict(edge.headers) or None)
            for name in self.model.exchanges:
                if name and not name.startswith("amq."):
                    channel.exchange_delete(name)


def outcome(operation: Callable[[], T]) -> tuple[T | None, int]:
    """Return what the model says, or the code with which it refuses."""
    try:
        return operation(), 0
    except model.RefusedError as refusal:
        return None, refusal.code


def facts(declared: Any) -> tuple[str, int, int]:  # noqa: ANN401 (what queue_declare returns)
    """Return what a declaration says."""
    return declared.queue, declared.message_count, declared.consumer_count


def nothing(_result: object) -> None:
    """Forget a result that is of no interest."""


def delivered(message: shmbroker.Message | None) -> tuple[str, int, int] | None:
    """Return what is seen of a message that was got."""
    if message is None:
        return None
    seen = bytes(message).decode() + ("R" if message.redelivered else "")
    return seen, message.delivery_tag, message.message_count


def test_channels_are_their_model(connection: shmbroker.Connection) -> None:
    """Whatever is done over channels, allowed or not, they do what their model does."""

    class Machine(ChannelMachine):
        pass

    Machine.connection = connection
    run_state_machine_as_test(Machine, settings=THOUSAND)
