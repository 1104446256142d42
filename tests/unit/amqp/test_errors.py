# SPDX-License-Identifier: Apache-2.0
"""Errors as brokers of the AMQP family word them."""

from __future__ import annotations

import pytest

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error, no_queue, not_found


@pytest.mark.parametrize(
    ("kind", "code", "name"),
    [
        (exceptions.AccessRefused, 403, "ACCESS_REFUSED"),
        (exceptions.BrokerNotFound, 404, "NOT_FOUND"),
        (exceptions.ChannelClosed, 504, "CHANNEL_ERROR"),
        (exceptions.ConnectionClosedByBroker, 320, "CONNECTION_FORCED"),
        (exceptions.GroupInUse, 405, "RESOURCE_LOCKED"),
        (exceptions.LeaseNotFound, 404, "NOT_FOUND"),
        (exceptions.MessageSettled, 406, "PRECONDITION_FAILED"),
        (exceptions.NotAllowed, 530, "NOT_ALLOWED"),
        (exceptions.NotImplementedByBroker, 540, "NOT_IMPLEMENTED"),
        (exceptions.PreconditionFailed, 406, "PRECONDITION_FAILED"),
    ],
)
def test_code_and_name_follow_from_the_class(kind: type[exceptions.BrokerError], code: int, name: str) -> None:
    """The text begins with AMQP's name of the reply code."""
    error = amqp_error(kind, "why")
    assert type(error) is kind
    assert (error.code, error.text) == (code, f"{name} - why")


def test_what_does_not_exist() -> None:
    """There is one virtual host."""
    error = not_found("queue 'q'")
    assert type(error) is exceptions.NotFound
    assert (error.code, error.text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    assert no_queue("it's").text == "NOT_FOUND - no queue 'it's' in vhost '/'"
