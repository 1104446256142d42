# SPDX-License-Identifier: Apache-2.0
"""Filters: bindings that lead only the messages that a selector selects to their destination.

A binding has a filter in its argument ``x-filter-jms-selector``. The filter comes after the rule of the exchange: of
the messages that the routing key, the pattern or the other arguments match, those that the filter rejects do not go
that way, as if there were no such binding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._amqp import field_tables
from shmbroker._amqp.errors import amqp_error
from shmbroker._selectors.compiler import compile_selector
from shmbroker._topology.matching import matcher_for
from shmbroker.exceptions import InvalidSelector, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shmbroker._topology.binding import Binding
    from shmbroker._topology.exchange import Exchange
    from shmbroker._topology.matching import Leaf, Matcher

FILTER = "x-filter-jms-selector"
"""The argument, which `basic_consume` has, too; the name is Qpid's."""


def check_filter(arguments: Mapping[str, Any]) -> None:
    """Checks the filter in the arguments of a binding.

    Raises:
        PreconditionFailed: it is no string, or no condition in the language of selectors.
    """
    if FILTER not in arguments:
        return
    text, wrong = arguments[FILTER], f"invalid arg '{FILTER}' for a binding in vhost '/'"
    if not isinstance(text, str):
        raise amqp_error(PreconditionFailed, f"{wrong}: expected a string, got {text!r}")
    try:
        compile_selector(text, FILTER)
    except InvalidSelector as error:
        raise amqp_error(PreconditionFailed, f"{wrong}: {error}") from error


def has_filter(binding: Binding) -> bool:
    """Whether a binding has a filter."""
    return FILTER.encode() in binding.table and FILTER in binding.arguments


class Filters:
    """The bindings of one exchange that have a filter. Those with the same filter share a matcher."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._matchers: dict[bytes, Matcher] = {}
        self._sizes: dict[bytes, int] = {}

    def add(self, binding: Binding, order: int) -> None:
        """Adds a binding; `order` is its number, see `Matcher`."""
        program, bare = _parted(binding)
        if program not in self._matchers:
            self._matchers[program] = matcher_for(self._exchange)
        self._sizes[program] = self._sizes.get(program, 0) + 1
        self._matchers[program].add(bare, order)

    def remove(self, binding: Binding, order: int) -> None:
        """Removes a binding that was added."""
        program, bare = _parted(binding)
        self._matchers[program].remove(bare, order)
        self._sizes[program] -= 1
        if not self._sizes[program]:
            del self._matchers[program], self._sizes[program]

    def leaves(self, keys: Iterable[str], headers: Mapping[str, Any], selects: Callable[[bytes], bool]) -> list[Leaf]:
        """Returns the leaves that match a message, see `Matcher`.

        Args:
            keys: the routing keys of the message.
            headers: its headers.
            selects: whether a compiled selector selects the message. It is asked once for each filter that has a
                binding whose exchange's rule matches.
        """
        found: list[Leaf] = []
        for program, matcher in self._matchers.items():
            leaves = matcher.leaves(keys, headers)
            if leaves and selects(program):
                found += leaves
        return found


def _parted(binding: Binding) -> tuple[bytes, Binding]:
    """Returns the compiled filter of a binding, and the binding without it."""
    arguments = binding.arguments
    program = compile_selector(arguments.pop(FILTER), FILTER)
    return program, binding._replace(table=field_tables.encode(arguments))
