# SPDX-License-Identifier: Apache-2.0
"""Errors of the arguments of ``queue_declare`` and ``basic_consume``, in RabbitMQ's words."""

from __future__ import annotations

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._checks import is_integer

_TYPES = {bool: "bool", int: "long", float: "double", str: "longstr", bytes: "binary", dict: "table", list: "array"}


def invalid(queue: str, argument: str, why: str) -> exceptions.PreconditionFailed:
    """Returns the error of an argument whose value is not allowed."""
    return amqp_error(
        exceptions.PreconditionFailed, f"invalid arg '{argument}' for queue '{queue}' in vhost '/': {why}"
    )


def invalid_type(queue: str, argument: str, value: object) -> exceptions.PreconditionFailed:
    """Returns the error of an argument whose value has a type that the argument cannot have."""
    return invalid(queue, argument, f"{{unacceptable_type,{_type_of(value)}}}")


def no_integer(queue: str, argument: str, value: object) -> exceptions.PreconditionFailed:
    """Returns the error of an argument that has to be an integer."""
    return invalid(queue, argument, f'"expected integer, got {_type_of(value)}"')


def integer(queue: str, argument: str, value: object, least: int, most: int) -> int:
    """Returns the value of an argument if it is an integer from ``least`` to ``most``.

    If ``least`` is negative, 0 is not allowed: a negative value then means "no limit".

    Raises:
        PreconditionFailed: the value is not such an integer.
    """
    if not is_integer(value):
        raise no_integer(queue, argument, value)
    if value < min(least, 0):
        raise invalid(queue, argument, f"{{value_negative,{value}}}")
    if value < least or (value == 0 and least < 0):
        raise invalid(queue, argument, f"{{value_zero,{value}}}")
    if value > most:
        raise invalid(queue, argument, f"{{value_too_large,{value}}}")
    return value


def _type_of(value: object) -> str:
    return "void" if value is None else _TYPES.get(type(value), type(value).__name__)
