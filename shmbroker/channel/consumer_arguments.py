# SPDX-License-Identifier: Apache-2.0
"""The arguments of ``basic_consume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp import arguments as amqp
from shmbroker._selectors.compiler import compile_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PRIORITY = 2**31 - 1
_SELECTOR = "x-filter-jms-selector"


def priority_of(queue: str, arguments: Mapping[str, Any]) -> int:
    """Returns the argument ``x-priority``, 0 without it.

    Raises:
        PreconditionFailed: it is no integer, or out of range.
    """
    priority = arguments.get("x-priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise amqp.no_integer(queue, "x-priority", priority)
    if abs(priority) > _MAX_PRIORITY:
        text = f'"expected integer from {-_MAX_PRIORITY} to {_MAX_PRIORITY}, got {priority}"'
        raise amqp.invalid(queue, "x-priority", text)
    return priority


def refuse_choice(queue: str, *, selector: bytes, no_local: bool) -> None:
    """Refuses a consumer that leaves out messages of a queue with message groups.

    Raises:
        PreconditionFailed: the consumer has a selector, or ``no_local``.
    """
    why = "a consumer of a queue with message groups takes all messages"
    if selector:
        raise amqp.invalid(queue, _SELECTOR, why)
    if no_local:
        raise amqp.invalid(queue, "no_local", why)


def selector_of(queue: str, arguments: Mapping[str, Any]) -> bytes:
    """Returns the compiled selector of the argument ``x-filter-jms-selector`` (Qpid's name); empty without it.

    Raises:
        PreconditionFailed: it is no string, or no condition in the language of selectors.
    """
    text = arguments.get(_SELECTOR)
    if text is None:
        return b""
    if not isinstance(text, str):
        raise amqp.invalid_type(queue, _SELECTOR, text)
    try:
        return compile_selector(text, _SELECTOR)
    except exceptions.InvalidSelector as error:
        raise amqp.invalid(queue, _SELECTOR, str(error)) from error
