# SPDX-License-Identifier: Apache-2.0
"""What a write may be asked for, without Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from shmbroker.spark.options import stream_write_options, write_options

NUMBERED = {"queue": "q", "txnAppId": "a", "txnVersion": "1"}
BAD = [
    ({"queue": "amq.group.g"}, "option queue is 'amq.group.g': a queue that is not the broker's own is allowed"),
    ({"queue": "q", "timeout": "0"}, "option timeout is '0': seconds, more than 0, are allowed"),
    ({"queue": "q", "timeout": "nan"}, "option timeout is 'nan'"),
    ({"queue": "q", "timeout": "inf"}, "option timeout is 'inf'"),
    ({"queue": "q", "timeout": "soon"}, "option timeout is 'soon'"),
    ({"queue": "q", "txnAppId": "a"}, "option txnVersion is missing: txnAppId is given, and both or none"),
    ({"queue": "q", "txnVersion": "1"}, "option txnAppId is missing: txnVersion is given, and both or none"),
    (NUMBERED | {"txnVersion": "-1"}, "option txnVersion is '-1': a whole number from 0 to 9223372036854775807"),
    (NUMBERED | {"txnVersion": str(2**63)}, "option txnVersion is '9223372036854775808': a whole number from 0"),
    (NUMBERED | {"txnVersion": "one"}, "option txnVersion is 'one'"),
    (NUMBERED | {"txnAppId": ""}, "option txnAppId is '': 1 to 64 characters without NUL"),
    (NUMBERED | {"txnAppId": "a" * 65}, "option txnAppId is 'aaaa"),
    (NUMBERED | {"txnAppId": "\N{ROCKET}" * 31}, "option txnAppId is '\N{ROCKET}"),
    (NUMBERED | {"txnAppId": "a\0"}, "option txnAppId is 'a\\x00'"),
    (NUMBERED | {"delivery": "at-least-once"}, "option delivery is 'at-least-once': with txnAppId, only exactly-once"),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=[f"{text[:32]} {at}" for at, (_, text) in enumerate(BAD)])
def test_a_bad_option_of_a_write_is_refused(options: dict[str, str], text: str) -> None:
    """The error names the option and what is allowed."""
    with pytest.raises(ValueError, match="option") as refused:
        write_options(options)
    assert str(refused.value).startswith(text)


def test_numbers_of_batches() -> None:
    """They begin with 0, as Spark's do; without them a write is one of its own."""
    found = write_options({"QUEUE": "q", "TXNAPPID": "\N{ROCKET}" * 30, "TXNVERSION": "0"})
    assert (found.app, found.version) == ("\N{ROCKET}" * 30, 0)
    assert write_options(NUMBERED | {"txnVersion": str(2**63 - 1)}).version == 2**63 - 1
    assert (write_options({"queue": "q"}).app, write_options({"queue": "q"}).timeout) == (None, None)
    assert (write_options(NUMBERED | {"timeout": "1.5"}).timeout, write_options(NUMBERED).version) == (1.5, 1)


def test_a_stream_has_numbers_of_its_own() -> None:
    """A streaming write is not given any."""
    with pytest.raises(
        ValueError, match="option 'txnappid' is unknown: broker, queue, delivery, payload, timeout are allowed"
    ):
        stream_write_options(NUMBERED)
