# SPDX-License-Identifier: Apache-2.0
"""Errors in the form of RabbitMQ and other AMQP 0-9-1 brokers: the name of the reply code, then the reason."""

from __future__ import annotations

from typing import TypeVar

from shmbroker import exceptions

_NAMES = {
    320: "CONNECTION_FORCED",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    504: "CHANNEL_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
}
E = TypeVar("E", bound=exceptions.BrokerError)


def amqp_error(kind: type[E], reason: str) -> E:
    """Makes an error; its reply code, and the name in front of its text, follow from the class.

    Args:
        kind: the class of the error.
        reason: what happened.
    """
    return kind(kind.default_code, f"{_NAMES[kind.default_code]} - {reason}")


def not_found(what: str) -> exceptions.NotFound:
    """The error of a queue or an exchange that does not exist.

    Args:
        what: such as ``queue 'jobs'``.
    """
    return amqp_error(exceptions.NotFound, f"no {what} in vhost '/'")


def no_queue(name: str) -> exceptions.NotFound:
    """The error of a queue that does not exist."""
    return not_found(f"queue '{name}'")
