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
    stateful_step_count=20,
    deadline=None,
    derandomize=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

NAMES = itertools.count()
CHANNELS = st.integers(0, 1)
QUEUES = st.sampled_from(["a"] * 8 + ["b"] * 8 + ["c"] * 2 + ["", "amq.mine"])
EXCHANGES = st.sampled_from(["x"] * 6 + ["y"] * 6 + ["z", "z", "amq.topic", "amq.headers", "amq.fanout"] + [""] * 5)
KINDS = st.sampled_from([*model.TYPES, *model.TYPES, "unheard-of"])
KEYS = st.sampled_from(["", "k", "k", "k.l", "k.l", "k.l.m"])
PATTERNS = KEYS | st.sampled_from(["#", "*", "k.#", "*.l", "#.l.#"])
DESTINATIONS = st.tuples(st.sampled_from([True, True, False]), QUEUES, EXCHANGES)
HEADERS = st.sampled_from([{}, {"h": 1}, {"h": 2}, {"h": 1, "i": "one"}])
ARGUMENTS = st.sampled_from(
    [
        *([{}] * 3),
        {"h": 1},
        {"h": None, "i": "one"},
        {"h": 1, "i": "one", "x-match": "any"},
        {"h": 2, "x-match": "neither"},
    ]
)
COPIES = st.sampled_from([{}] * 8 + [{"CC": ["k"]}, {"BCC": ["k.l", "a"]}, {"CC": 5}])
RARELY = st.sampled_from([False] * 9 + [True])
SELDOM = st.sampled_from([False] * 3 + [True])


class ChannelMachine(RuleBasedStateMachine):
    """Does the same over two channels and to the model."""

    connection: shmbroker.Connection

    @initialize(kind=st.sampled_from(model.TYPES), automatic=st.booleans(), limit=st.sampled_from([-1, 2]))
    def begin(self, kind: str, limit: int, *, automatic: bool) -> None:
        """Open the channels, declare a little; names are prefixed ones, but for those that mean something."""
        self.prefix = f"{next(NAMES)}-"
        self.model = model.Model()
        self.bodies = itertools.count()
        self.channels = [self.connection.channel() for _ in range(2)]
        self.states = [model.Channel() for _ in range(2)]
        self.returned = [Returned(channel) for channel in self.channels]
        self.expected_returns: list[list[bytes]] = [[], []]
        self.queue_declare(0, "a", auto_delete=False, exclusive=False, max_length=model.UNBOUNDED, differ=True)
        self.queue_declare(1, "b", auto_delete=False, exclusive=False, max_length=limit, differ=True)
        self.exchange_declare(0, "x", kind, auto_delete=automatic, internal=False, alternate="y", differ=True)
        self.exchange_declare(0, "y", "fanout", auto_delete=False, internal=False, alternate=None, differ=True)
        self.bind(0, "x", (True, "a", ""), "k", {}, bind=True)
        self.bind(0, "y", (True, "b", ""), "", {}, bind=True)
        self.bind(0, "y", (True, "a", ""), "", {}, bind=True)

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
        max_length=st.sampled_from([model.UNBOUNDED, model.UNBOUNDED, 1, 2]),
        differ=SELDOM,
    )
    def queue_declare(
        self, number: int, queue: str, *, auto_delete: bool, exclusive: bool, max_length: int, differ: bool
    ) -> None:
        """Declare a queue, mostly as it is; or have one named."""
        there = self.model.queues.get(self.name(queue))
        if there is not None and not differ:
            auto_delete, exclusive, max_length = there.auto_delete, there.exclusive, there.max_length
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

    @rule(number=CHANNELS, queue=QUEUES, action=st.sampled_from(["look"] * 6 + ["purge", "delete", "delete if empty"]))
    def administer(self, number: int, queue: str, action: str) -> None:
        """Declare passively, purge or delete: one rule, so that it is not too often."""
        name, state = self.name(queue), self.states[number]
        if action == "look":
            self.same(
                number,
                lambda: self.model.queue_look(state, name),
                lambda channel: facts(channel.queue_declare(name, passive=True)),
            )
        elif action == "purge":
            self.same(number, lambda: self.model.queue_purge(state, name), lambda channel: channel.queue_purge(name))
        else:
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
        differ=SELDOM,
    )
    def exchange_declare(
        self,
        number: int,
        exchange: str,
        kind: str,
        *,
        auto_delete: bool,
        internal: bool,
        alternate: str | None,
        differ: bool,
    ) -> None:
        """Declare an exchange, mostly as it is."""
        name = self.name(exchange)
        other = None if alternate is None else self.name(alternate)
        there = self.model.exchanges.get(name)
        if there is not None and not differ:
            kind, auto_delete, internal, other = there.kind, there.auto_delete, there.internal, there.alternate
        options: dict[str, Any] = {"auto_delete": auto_delete, "internal": internal}
        arguments = None if other is None else {"alternate-exchange": other}
        if name.startswith("amq."):
            return
        self.same(
            number,
            lambda: self.model.exchange_declare(name, kind, alternate=other, **options),
            lambda channel: nothing(channel.exchange_declare(name, kind, arguments=arguments, **options)),
        )

    @rule(number=CHANNELS, exchange=EXCHANGES, delete=SELDOM, if_unused=st.booleans())
    def exchange_delete(self, number: int, exchange: str, *, delete: bool, if_unused: bool) -> None:
        """Delete an exchange, or more often declare it passively."""
        name = self.name(exchange)
        if name and not delete:
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
        bind=st.sampled_from([True, True, False]),
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
        queue=QUEUES,
        headers=HEADERS,
        copies=COPIES,
        count=st.integers(1, 4),
        mandatory=st.booleans(),
    )
    def publish(  # noqa: PLR0917 (a rule is called by its strategies' names)
        self,
        number: int,
        exchange: str,
        key: str,
        queue: str,
        headers: dict[str, Any],
        copies: dict[str, Any],
        count: int,
        *,
        mandatory: bool,
    ) -> None:
        """Publish a few; what is refused is so by the next operation, and what is published till then is ignored."""
        name = self.name(exchange)
        if name == "":
            key = self.name(queue)
            copies = {"CC": [self.name("b")]} if "BCC" in copies else copies
        properties = BasicProperties(headers=headers | copies) if headers or copies else None
        for _ in range(count):
            body = f"b{next(self.bodies)}"
            routed, code = outcome(lambda body=body: self.model.publish(name, key, body, headers | copies))
            confirmed = self.channels[number].basic_publish(name, key, body.encode(), properties, mandatory)
            if code:
                self.channels[number].basic_publish("amq.fanout", "", b"ignored")
                self.check_refusal(number, code)
                return
            self.published(number, body.encode(), confirmed, returned=mandatory and not routed)

    def check_refusal(self, number: int, code: int) -> None:
        """See that the next operation says why a publish was refused."""
        self.same(number, lambda: model.refuse(code), lambda channel: channel.queue_declare(self.name("a")))

    def published(self, number: int, body: bytes, confirmed: int | None, *, returned: bool) -> None:
        """See that a message has its number if the channel confirms, and that it comes back if it has to."""
        confirms = self.states[number].confirms
        assert confirmed == (None if confirms is None else next(confirms))
        if returned:
            self.expected_returns[number].append(body)
            becomes(lambda: [back for *_, back in self.returned[number].returns], self.expected_returns[number])

    @rule(number=CHANNELS, queue=QUEUES, count=st.integers(1, 4), auto_ack=SELDOM, anyhow=SELDOM, more=st.booleans())
    def get(self, number: int, queue: str, count: int, *, auto_ack: bool, anyhow: bool, more: bool) -> None:
        """Get the oldest few, mostly where there are some, or nothing; often some have just been published."""
        if more:
            self.publish(1 - number, "", "", queue, {}, {}, 3, mandatory=False)
        name = self.name(queue)
        full = [name for name, found in self.model.queues.items() if found.ready]
        if full and not anyhow and name not in full:
            name = full[0]
        for _ in range(count):
            got = self.same(
                number,
                lambda: self.model.get(self.states[number], name, auto_ack=auto_ack),
                lambda channel: delivered(channel.basic_get(name, auto_ack=auto_ack)),
            )
            if got is None:
                return

    @rule(number=CHANNELS, count=st.integers(1, 3), data=st.data(), how=st.sampled_from(["ack", "nack", "reject"]))
    def settle_some(self, number: int, count: int, data: st.DataObject, how: str) -> None:
        """Settle several one by one, in any order."""
        for _ in range(min(count, len(self.states[number].unacked))):
            self.settle(number, data, how, multiple=False, unknown=False)

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
            assert len(handle) == len(queue.ready)

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
