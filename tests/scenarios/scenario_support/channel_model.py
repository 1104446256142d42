# SPDX-License-Identifier: Apache-2.0
"""A plain model of what channels do: exchanges, bindings, queues, deliveries, as RabbitMQ has them.

One connection, no consumers, no transactions. An operation returns what the broker should, or raises `RefusedError`
with the code of the error that closes the channel; then it has changed nothing.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import itertools

TYPES = ("direct", "fanout", "topic", "headers")
UNBOUNDED = -1


class RefusedError(Exception):
    """The broker should refuse, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refuse(code: int) -> NoReturn:
    """Refuse the operation."""
    raise RefusedError(code)


@dataclass(order=True)
class Entry:
    """A message in a queue: ordered by its place."""

    place: int
    body: str = field(compare=False)
    redelivered: bool = field(default=False, compare=False)

    def seen(self) -> str:
        """Return what a get shows."""
        return self.body + ("R" if self.redelivered else "")


@dataclass
class Queue:
    """What was declared, and what is ready."""

    auto_delete: bool
    exclusive: bool
    max_length: int
    ready: list[Entry] = field(default_factory=list)
    places: int = 0
    deleted: bool = False

    def put(self, body: str) -> None:
        """Add at the tail."""
        self.ready.append(Entry(self.places, body))
        self.places += 1
        self._drop()

    def give_back(self, entry: Entry) -> None:
        """Return a delivered message to its place."""
        if not self.deleted:
            entry.redelivered = True
            bisect.insort(self.ready, entry)
            self._drop()

    def _drop(self) -> None:
        while self.max_length != UNBOUNDED and len(self.ready) > self.max_length:
            del self.ready[0]


@dataclass
class Exchange:
    """What was declared."""

    kind: str
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None


@dataclass(frozen=True)
class Binding:
    """An edge of the graph of exchanges and queues."""

    source: str
    to_queue: bool
    destination: str
    key: str
    headers: tuple[tuple[str, Any], ...]

    def matches(self, kind: str, key: str, headers: dict[str, Any]) -> bool:
        """Tell whether a message goes along."""
        if kind == "fanout":
            return True
        if kind == "direct":
            return self.key == key
        if kind == "topic":
            return topic_matches(words(self.key), words(key))
        wanted = dict(self.headers)
        any_is_enough = wanted.pop("x-match", "all") == "any"
        found = [name in headers and value in (None, headers[name]) for name, value in wanted.items()]
        return any(found) if any_is_enough else all(found)


def words(key: str) -> list[str]:
    """Return the words of a topic key; an empty one has none."""
    return key.split(".") if key else []


def topic_matches(pattern: list[str], key: list[str]) -> bool:
    """Tell whether a topic pattern matches."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], key[start:]) for start in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and topic_matches(pattern[1:], key[1:])


@dataclass
class Channel:
    """What a channel knows."""

    unacked: dict[int, tuple[Queue, Entry]] = field(default_factory=dict)
    tags: int = 0
    last_queue: str | None = None
    confirms: itertools.count[int] | None = None


class Model:
    """The broker as one connection sees it."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {"": Exchange("direct")}
        self.exchanges |= {f"amq.{kind}": Exchange(kind) for kind in TYPES}
        self.bindings: set[Binding] = set()

    # ---- queues ----

    def queue_declare(self, channel: Channel, name: str, **asked: Any) -> tuple[str, int, int]:  # noqa: ANN401
        """Declare a queue, or compare."""
        wanted = Queue(**asked)
        queue = self.queues.get(name)
        if queue is None:
            if name.startswith("amq."):
                refuse(403)
            queue = self.queues[name] = wanted
        elif queue.exclusive != wanted.exclusive:
            refuse(405)
        elif (queue.auto_delete, queue.max_length) != (wanted.auto_delete, wanted.max_length):
            refuse(406)
        channel.last_queue = name
        return name, len(queue.ready), 0

    def queue_look(self, channel: Channel, name: str) -> tuple[str, int, int]:
        """Declare passively; here '' is no short form."""
        if name not in self.queues:
            refuse(404)
        queue = self.queues[name]
        channel.last_queue = name
        return name, len(queue.ready), 0

    def queue_purge(self, channel: Channel, name: str) -> int:
        """Remove what is ready."""
        _, queue = self._queue(channel, name)
        gone, queue.ready = len(queue.ready), []
        return gone

    def queue_delete(self, channel: Channel, name: str, *, if_empty: bool) -> int:
        """Delete the queue with its bindings."""
        name = self._named(channel, name)
        if name not in self.queues:
            return 0
        queue = self.queues[name]
        if if_empty and queue.ready:
            refuse(406)
        del self.queues[name]
        queue.deleted = True
        self._unbind([edge for edge in self.bindings if edge.to_queue and edge.destination == name])
        return len(queue.ready)

    def _named(self, channel: Channel, name: str) -> str:
        if name == "" and channel.last_queue is None:
            refuse(404)
        return name or str(channel.last_queue)

    def _queue(self, channel: Channel, name: str) -> tuple[str, Queue]:
        name = self._named(channel, name)
        if name not in self.queues:
            refuse(404)
        return name, self.queues[name]

    # ---- exchanges and bindings ----

    def exchange_declare(self, name: str, kind: str, **asked: Any) -> None:  # noqa: ANN401
        """Declare an exchange, or compare."""
        wanted = Exchange(kind, **asked)
        if kind not in TYPES:
            refuse(406)
        if name == "":
            refuse(403)
        if name not in self.exchanges:
            if name.startswith("amq."):
                refuse(403)
            self.exchanges[name] = wanted
        elif self.exchanges[name] != wanted:
            refuse(406)

    def exchange_look(self, name: str) -> None:
        """Declare passively."""
        if name not in self.exchanges:
            refuse(404)

    def exchange_delete(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange with its bindings."""
        if name == "" or name.startswith("amq."):
            refuse(403)
        if name not in self.exchanges:
            return
        if if_unused and any(edge.source == name for edge in self.bindings):
            refuse(406)
        self._delete_exchange(name)

    def _delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings -= {edge for edge in self.bindings if edge.source == name}
        self._unbind([edge for edge in self.bindings if not edge.to_queue and edge.destination == name])

    def bind(self, channel: Channel, binding: Binding) -> None:
        """Add a binding to the set."""
        binding = self._whole(channel, binding)
        if binding.destination not in (self.queues if binding.to_queue else self.exchanges):
            refuse(404)
        if binding.source not in self.exchanges:
            refuse(404)
        if dict(binding.headers).get("x-match", "all") not in ("all", "any") and (
            self.exchanges[binding.source].kind == "headers"
        ):
            refuse(406)
        self.bindings.add(binding)

    def unbind(self, channel: Channel, binding: Binding) -> None:
        """Remove a binding, if it is there."""
        binding = self._whole(channel, binding)
        if binding in self.bindings:
            self._unbind([binding])

    def _whole(self, channel: Channel, binding: Binding) -> Binding:
        destination, key = binding.destination, binding.key
        if binding.to_queue:
            destination = self._named(channel, destination)
            if binding.destination == "" and key == "":
                key = destination
        if binding.source == "" or (not binding.to_queue and destination == ""):
            refuse(403)
        return Binding(binding.source, binding.to_queue, destination, key, binding.headers)

    def _unbind(self, edges: list[Binding]) -> None:
        """Remove bindings, and the auto-delete exchanges that were their sources and have none left."""
        self.bindings -= set(edges)
        for source in {edge.source for edge in edges}:
            exchange = self.exchanges.get(source)
            if exchange is None or not exchange.auto_delete:
                continue
            if not any(edge.source == source for edge in self.bindings):
                self._delete_exchange(source)

    # ---- messages ----

    def route(self, exchange: str, keys: list[str], headers: dict[str, Any]) -> set[str]:
        """Return the queues that a message goes to."""
        queues: set[str] = set()
        seen, work = {exchange}, [exchange]
        while work:
            name = work.pop()
            found = self._step(name, keys, headers)
            queues |= {destination for to_queue, destination in found if to_queue}
            ahead = {destination for to_queue, destination in found if not to_queue}
            alternate = self.exchanges[name].alternate
            if not found and alternate in self.exchanges:
                ahead = {alternate}
            work += ahead - seen
            seen |= ahead
        return queues

    def _step(self, name: str, keys: list[str], headers: dict[str, Any]) -> set[tuple[bool, str]]:
        if name == "":
            return {(True, key) for key in keys if key in self.queues}
        kind = self.exchanges[name].kind
        edges = [edge for edge in self.bindings if edge.source == name]
        return {(edge.to_queue, edge.destination) for edge in edges for key in keys if edge.matches(kind, key, headers)}

    def publish(self, exchange: str, key: str, body: str, headers: dict[str, Any]) -> int:
        """Publish; return how many queues got it."""
        if exchange not in self.exchanges:
            refuse(404)
        if self.exchanges[exchange].internal:
            refuse(403)
        keys = [key]
        for name in ("CC", "BCC"):
            if not isinstance(headers.get(name, []), list):
                refuse(406)
            keys += headers.get(name, [])
        found = self.route(exchange, keys, headers)
        for name in found:
            self.queues[name].put(body)
        return len(found)

    def get(self, channel: Channel, name: str, *, auto_ack: bool) -> tuple[str, int, int] | None:
        """Take the oldest; return what is seen of it, its tag, and how many remain."""
        _, queue = self._queue(channel, name)
        if not queue.ready:
            return None
        entry = queue.ready.pop(0)
        channel.tags += 1
        if not auto_ack:
            channel.unacked[channel.tags] = queue, entry
        return entry.seen(), channel.tags, len(queue.ready)

    def settle(self, channel: Channel, tag: int, *, multiple: bool, requeue: bool) -> None:
        """Settle deliveries of the channel; requeue or forget them."""
        if tag == 0 and multiple:
            tags = list(channel.unacked)
        elif tag not in channel.unacked:
            refuse(406)
        else:
            tags = [one for one in channel.unacked if one == tag or (multiple and one < tag)]
        for one in tags:
            queue, entry = channel.unacked.pop(one)
            if requeue:
                queue.give_back(entry)

    def close(self, channel: Channel) -> None:
        """End a channel: what was unacked returns."""
        self.settle(channel, 0, multiple=True, requeue=True)
