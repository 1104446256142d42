# SPDX-License-Identifier: Apache-2.0
"""Which bindings of one exchange match a message: one matcher per type of exchange.

A matcher keeps its bindings in leaves. A leaf holds all that match alike (one routing key, one place in the trie, one
table of arguments): places to destinations, oldest first. Adding and removing touch one leaf and the way to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from shmbroker._amqp import field_tables
from shmbroker._topology import ordered
from shmbroker._topology.exchange import MATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shmbroker._topology.binding import Binding, Destination
    from shmbroker._topology.exchange import Exchange
    from shmbroker._topology.ordered import Places

    Leaf = Places[Destination]

_ANY = {field_tables.encode_value("any"), field_tables.encode_value("any-with-x")}
_WITH_X = {field_tables.encode_value("all-with-x"), field_tables.encode_value("any-with-x")}
_VOID = b"V"


class Matcher(Protocol):
    """The bindings of one exchange."""

    def add(self, binding: Binding, place: int) -> None:
        """Take a binding in; its place is the highest so far."""

    def remove(self, binding: Binding, place: int) -> None:
        """Let go of a binding that was added."""

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:
        """Return the leaves that match a message with these routing keys and headers; one may come twice."""


def matcher_for(exchange: Exchange) -> Matcher:
    """Return a matcher without bindings for an exchange."""
    return _MATCHERS[exchange.type]()


class Direct:
    """A routing key matches itself."""

    def __init__(self) -> None:
        self._leaves: dict[str, Leaf] = {}

    def add(self, binding: Binding, place: int) -> None:
        """Take a binding in."""
        ordered.add_to(self._leaves, binding.routing_key, place, binding.destination)

    def remove(self, binding: Binding, place: int) -> None:
        """Let go of a binding."""
        ordered.remove_from(self._leaves, binding.routing_key, place)

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the leaves of the keys."""
        return [leaf for key in keys if (leaf := self._leaves.get(key)) is not None]


class Fanout:
    """Everything matches."""

    def __init__(self) -> None:
        self._leaf: Leaf | None = None

    def add(self, binding: Binding, place: int) -> None:
        """Take a binding in."""
        self._leaf = ordered.add(self._leaf, place, binding.destination)

    def remove(self, binding: Binding, place: int) -> None:  # noqa: ARG002 (see Matcher)
        """Let go of a binding."""
        self._leaf = ordered.remove(self._leaf, place)

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return all there is."""
        return [] if self._leaf is None else [self._leaf]


class _Node:
    """A place in the trie, reached by the words of patterns before it.

    Attributes:
        words: By the next word: `*` for any, `#` for any number of them, as they stand in the pattern.
        leaf: The bindings that end here.
    """

    __slots__ = ("leaf", "words")

    def __init__(self) -> None:
        self.words = _NO_WORDS
        self.leaf: Leaf | None = None

    def grow(self, word: str) -> _Node:
        """Return a new node after this one."""
        if self.words is _NO_WORDS:
            self.words = {}
        new = self.words[word] = _Node()
        return new


_NO_WORDS: dict[str, _Node] = {}  # of all nodes at which patterns end: empty for ever


class Topic:
    """Patterns of words: a trie that is walked from all reached nodes at once, word by word.

    A node is reached at most once per word, so the cost depends on the words of the key and on how many beginnings of
    patterns match, not on how many ways there are to match one.
    """

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: Binding, place: int) -> None:
        """Take a binding in."""
        node = self._root
        for word in words_of(binding.routing_key):
            following = node.words.get(word)
            node = node.grow(word) if following is None else following
        node.leaf = ordered.add(node.leaf, place, binding.destination)

    def remove(self, binding: Binding, place: int) -> None:
        """Let go of a binding, and of the nodes that only it needed."""
        node = self._root
        way = []
        for word in words_of(binding.routing_key):
            way.append((node, word))
            node = node.words[word]
        node.leaf = ordered.remove(node.leaf, place)
        while way and node.leaf is None and not node.words:
            node, word = way.pop()
            del node.words[word]

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the leaves of the patterns that match a key."""
        return [node.leaf for key in keys for node in self._reached(words_of(key)) if node.leaf is not None]

    def _reached(self, words: list[str]) -> dict[_Node, None]:
        """Return the nodes at which the walk ends; whoever reaches a `#` stays there, whatever comes."""
        here = {self._root: None}
        stay: dict[_Node, None] = {}
        _stay_at_any_number(self._root, stay)
        for word in words:
            # A word of a key may be "*" or "#" too; that leads only where any word leads.
            here = dict.fromkeys(
                following
                for node in (*here, *stay)
                for step in (word, "*")
                if (following := node.words.get(step)) is not None
            )
            for node in here:
                _stay_at_any_number(node, stay)
        return here | stay


def words_of(key: str) -> list[str]:
    """Return the words of a key; the empty one has none.

    >>> words_of("a..b"), words_of("")
    (['a', '', 'b'], [])
    """
    return key.split(".") if key else []


def _stay_at_any_number(node: _Node, stay: dict[_Node, None]) -> None:
    """With a node its `#` is reached, by no word; with that its own `#`."""
    following = node.words.get("#")
    while following is not None and following not in stay:
        stay[following] = None
        following = following.words.get("#")


class _Criteria:
    """A table of arguments, and the bindings that have it.

    Attributes:
        pairs: Each a name and the encoded value, or None if any value will do.
        any: Whether one pair is enough.
        leaf: The bindings.
        anchors: The pairs under which it is found: the message must have one of these.
    """

    __slots__ = ("anchors", "any", "leaf", "pairs")

    def __init__(self, table: bytes) -> None:
        fields = dict(field_tables.fields(table))
        match = fields.pop(MATCH, None)
        self.any = match in _ANY
        self.pairs = frozenset(
            (name, None if value == _VOID else value)
            for name, value in fields.items()
            if match in _WITH_X or not name.startswith("x-")
        )
        self.leaf: Leaf | None = None
        self.anchors: Iterable[_Pair] = ()


_Pair = tuple[str, bytes | None]


class Headers:
    """Tables of names and values that a message's headers must have, all of them or any.

    Equal tables are looked at once. A table that any pair satisfies is found under each of its pairs; one that wants
    all of them under a single one, that which fewest others are found under. So the cost depends on the headers of the
    message and on the tables that share a pair with it, not on how many tables there are.
    """

    def __init__(self) -> None:
        self._criteria: dict[bytes, _Criteria] = {}
        self._anchored: dict[_Pair, dict[_Criteria, None]] = {}
        self._always: dict[_Criteria, None] = {}

    def add(self, binding: Binding, place: int) -> None:
        """Take a binding in."""
        criteria = self._criteria.get(binding.table)
        if criteria is None:
            criteria = self._criteria[binding.table] = _Criteria(binding.table)
            self._anchor(criteria)
        criteria.leaf = ordered.add(criteria.leaf, place, binding.destination)

    def remove(self, binding: Binding, place: int) -> None:
        """Let go of a binding."""
        criteria = self._criteria[binding.table]
        criteria.leaf = ordered.remove(criteria.leaf, place)
        if criteria.leaf is not None:
            return
        del self._criteria[binding.table]
        self._always.pop(criteria, None)
        for pair in criteria.anchors:
            del self._anchored[pair][criteria]
            if not self._anchored[pair]:
                del self._anchored[pair]

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the leaves of the tables that the headers satisfy."""
        found = list(self._always)
        if self._anchored:
            given = _pairs_of(headers)
            for pair in given & self._anchored.keys():
                found += (one for one in self._anchored[pair] if one.any or one.pairs <= given)
        return [criteria.leaf for criteria in found if criteria.leaf is not None]

    def _anchor(self, criteria: _Criteria) -> None:
        if criteria.any:
            criteria.anchors = criteria.pairs
        elif criteria.pairs:
            criteria.anchors = (min(criteria.pairs, key=lambda pair: len(self._anchored.get(pair, ()))),)
        else:
            self._always[criteria] = None
        for pair in criteria.anchors:
            self._anchored.setdefault(pair, {})[criteria] = None


def _pairs_of(headers: Mapping[str, Any]) -> set[_Pair]:
    """Return what a message's headers satisfy."""
    pairs: set[_Pair] = set()
    for name, value in headers.items():
        pairs.add((name, None))
        try:
            array = list(value) if isinstance(value, tuple) else value  # as which it travels
            pairs.add((name, field_tables.encode_value(array)))
        except (TypeError, ValueError):
            continue  # what AMQP cannot say equals nothing that was said in a binding
    return pairs


_MATCHERS: dict[str, type[Direct | Fanout | Topic | Headers]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}
