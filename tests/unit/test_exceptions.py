# SPDX-License-Identifier: Apache-2.0
"""The errors: which kind is which, their codes, and what they say."""

from __future__ import annotations

import pickle
import queue as standard

import pytest

from shmbroker import exceptions


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.ConnectionClosedByBroker, 320),
        (exceptions.AccessRefused, 403),
        (exceptions.NotFound, 404),
        (exceptions.ResourceLocked, 405),
        (exceptions.PreconditionFailed, 406),
        (exceptions.NotAllowed, 530),
        (exceptions.NotImplementedByBroker, 540),
        (exceptions.NoServer, 313),
        (exceptions.RequestRefused, 403),
        (exceptions.SchemaMismatch, 406),
        (exceptions.ExchangeError, 541),
        (exceptions.FunctionFailed, 541),
    ],
)
def test_each_error_has_its_amqp_code(error: type[exceptions.BrokerError], code: int) -> None:
    """Errors that AMQP knows carry its code unless another is given."""
    assert issubclass(error, exceptions.BrokerError)
    assert error(text="why").code == code
    assert error(599, "why").code == 599
    assert "why" in str(error(text="why"))


@pytest.mark.parametrize(
    "error",
    [
        exceptions.NotFound,
        exceptions.AccessRefused,
        exceptions.ResourceLocked,
        exceptions.PreconditionFailed,
    ],
)
def test_errors_that_close_a_channel(error: type[Exception]) -> None:
    """What AMQP closes the channel for is a ChannelClosedByBroker."""
    assert issubclass(error, exceptions.ChannelClosedByBroker)


def test_waiting_errors_are_those_of_the_standard_library() -> None:
    """A program that knows only those of the standard library catches these with them."""
    assert issubclass(exceptions.OutOfMemory, standard.Full)
    assert issubclass(exceptions.NeverFits, standard.Full)
    assert not issubclass(exceptions.NeverFits, exceptions.OutOfMemory)
    assert issubclass(exceptions.NeverFitsMemory, exceptions.NeverFits)
    assert issubclass(exceptions.NeverFitsMemory, exceptions.OutOfMemory)
    assert issubclass(exceptions.Timeout, TimeoutError)


@pytest.mark.parametrize("error", [exceptions.NotFound, exceptions.LayoutMismatch])
def test_an_error_survives_the_way_to_another_process(
    error: type[exceptions.BrokerError],
) -> None:
    """An error pickles with its code and text."""
    copy = pickle.loads(pickle.dumps(error(404, "why")))  # noqa: S301 (our own)
    assert type(copy) is error
    assert (copy.code, copy.text) == (404, "why")


def test_an_error_says_its_code_and_what_happened() -> None:
    """Without a text, the code alone; without a code, that of its kind."""
    for error, code, said in (
        (exceptions.NotFound(), 404, "404"),
        (exceptions.NotFound(text="none"), 404, "404 none"),
        (exceptions.NotFound(0, "none"), 0, "0 none"),
        (exceptions.BrokerError(599), 599, "599"),
    ):
        assert (error.code, str(error)) == (code, said)
        assert error.args == (code, error.text)
