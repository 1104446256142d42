# SPDX-License-Identifier: Apache-2.0
"""Finds the bindings of one exchange that match a message: one matcher per type of exchange.

A matcher keeps its bindings in leaves. A leaf holds all bindings that match the same messages: those of one routing
key, one node of the trie, or one table of arguments. Each binding has a number, in the order in which bindings were
made. A leaf maps these numbers to destinations, oldest first. Adding or removing a binding touches one leaf and the
path to it.
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
    from shmbroker._topology.ordered import Ordered

    Leaf = Ordered[Destination]

_ANY = {field_tables.encode_value("any"), field_tables.encode_value("any-with-x")}
_WITH_X = {field_tables.encode_value("all-with-x"), field_tables.encode_value("any-with-x")}
_VOID = b"V"


class Matcher(Protocol):
    """The bindings of one exchange."""

    def add(self, binding: Binding, order: int) -> None:
        """Add a binding; `order` is its number, which is higher than that of every earlier binding."""

    def remove(self, binding: Binding, order: int) -> None:
        """Remove a binding that was added."""

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:
        """Return the leaves that match a message with these routing keys and headers; a leaf may occur twice."""


def matcher_for(exchange: Exchange) -> Matcher:
    """Return a matcher without bindings for an exchange."""
    return _MATCHERS[exchange.type]()


class Direct:
    """Matches a routing key that is equal to the binding's."""

    def __init__(self) -> None:
        self._leaves: dict[str, Leaf] = {}

    def add(self, binding: Binding, order: int) -> None:
        """Add a binding."""
        ordered.add_to(self._leaves, binding.routing_key, order, binding.destination)

    def remove(self, binding: Binding, order: int) -> None:
        """Remove a binding."""
        ordered.remove_from(self._leaves, binding.routing_key, order)

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the leaves of the routing keys."""
        return [leaf for key in keys if (leaf := self._leaves.get(key)) is not None]


class Fanout:
    """Matches every message."""

    def __init__(self) -> None:
        self._leaf: Leaf | None = None

    def add(self, binding: Binding, order: int) -> None:
        """Add a binding."""
        self._leaf = ordered.add(self._leaf, order, binding.destination)

    def remove(self, binding: Binding, order: int) -> None:  # noqa: ARG002 (see Matcher)
        """Remove a binding."""
        self._leaf = ordered.remove(self._leaf, order)

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the only leaf, if there is one."""
        return [] if self._leaf is None else [self._leaf]


class _Node:
    """A node of the trie of patterns: the path from the root to it gives the first words of one or more patterns.

    Attributes:
        words: The next nodes, by the next word of the pattern; `*` (any word) and `#` (any number) are kept as written.
        leaf: The bindings whose pattern ends here.
    """

    __slots__ = ("leaf", "words")

    def __init__(self) -> None:
        self.words = _NO_WORDS
        self.leaf: Leaf | None = None

    def grow(self, word: str) -> _Node:
        """Return a new node that follows this one."""
        if self.words is _NO_WORDS:
            self.words = {}
        new = self.words[word] = _Node()
        return new


_NO_WORDS: dict[str, _Node] = {}  # always empty; the words of each node that no node has followed yet


class Topic:
    """Matches patterns of words with a trie, walked word by word from all reached nodes in parallel.

    A node is reached at most once per word. So the cost depends on the words of the routing key and on how many
    prefixes of patterns match, not on how many ways there are to match one.
    """

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: Binding, order: int) -> None:
        """Add a binding."""
        node = self._root
        for word in words_of(binding.routing_key):
            following = node.words.get(word)
            node = node.grow(word) if following is None else following
        node.leaf = ordered.add(node.leaf, order, binding.destination)

    def remove(self, binding: Binding, order: int) -> None:
        """Remove a binding, and the nodes that only it needed."""
        node = self._root
        way = []
        for word in words_of(binding.routing_key):
            way.append((node, word))
            node = node.words[word]
        node.leaf = ordered.remove(node.leaf, order)
        while way and node.leaf is None and not node.words:
            node, word = way.pop()
            del node.words[word]

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any]) -> list[Leaf]:  # noqa: ARG002 (see Matcher)
        """Return the leaves of the patterns that match a routing key."""
        return [node.leaf for key in keys for node in self._reached(words_of(key)) if node.leaf is not None]

    def _reached(self, words: list[str]) -> dict[_Node, None]:
        """Return the nodes reached after all the words. A `#` node, once reached, stays reached at every later word."""
        here = {self._root: None}
        stay: dict[_Node, None] = {}
        _stay_at_any_number(self._root, stay)
        for word in words:
            # The word "*" or "#" of a routing key has no special meaning. In a pattern, only "*" and "#" match it.
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
    """Return the words of a routing key; the empty key has none.

    >>> words_of("a..b"), words_of("")
    (['a', '', 'b'], [])
    """
    return key.split(".") if key else []


def _stay_at_any_number(node: _Node, stay: dict[_Node, None]) -> None:
    """Add to `stay` the `#` node that follows a node, then the `#` node that follows that `#` node, and so on.

    A key that reaches the first node reaches all of these too, because `#` also matches zero words.
    """
    following = node.words.get("#")
    while following is not None and following not in stay:
        stay[following] = None
        following = following.words.get("#")


class _Criteria:
    """A table of arguments, and the bindings that have it.

    Attributes:
        pairs: Pairs of a header's name and its encoded value; the value None matches any value of that header.
        any: Whether one matching pair is enough; otherwise all pairs must match.
        leaf: The bindings.
        anchors: The pairs under which this table is indexed. A matching message has at least one of them; without
            anchors, every message matches, or none does.
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
    """Matches tables of names and values against a message's headers: all pairs must match, or any.

    Bindings with equal tables share one entry. A table that any pair satisfies is indexed under each of its pairs. A
    table that needs all pairs is indexed under one, the pair that indexes the fewest other tables. So the cost depends
    on the headers of the message and on the tables that share a pair with it, not on the number of tables.
    """

    def __init__(self) -> None:
        self._criteria: dict[bytes, _Criteria] = {}
        self._anchored: dict[_Pair, dict[_Criteria, None]] = {}
        self._always: dict[_Criteria, None] = {}

    def add(self, binding: Binding, order: int) -> None:
        """Add a binding."""
        criteria = self._criteria.get(binding.table)
        if criteria is None:
            criteria = self._criteria[binding.table] = _Criteria(binding.table)
            self._anchor(criteria)
        criteria.leaf = ordered.add(criteria.leaf, order, binding.destination)

    def remove(self, binding: Binding, order: int) -> None:
        """Remove a binding."""
        criteria = self._criteria[binding.table]
        criteria.leaf = ordered.remove(criteria.leaf, order)
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
    """Return the pairs that a message's headers satisfy."""
    pairs: set[_Pair] = set()
    for name, value in headers.items():
        pairs.add((name, None))
        try:
            pairs.add((name, field_tables.encode_value(value)))
        except (TypeError, ValueError):
            continue  # the value has no AMQP form, so no binding can ask for it
    return pairs


_MATCHERS: dict[str, type[Direct | Fanout | Topic | Headers]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}
