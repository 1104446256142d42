# SPDX-License-Identifier: Apache-2.0
"""Times in properties and headers: what is given, and what comes back."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker import BasicProperties, properties

if TYPE_CHECKING:
    import shmbroker

AWARE = dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
LATE = dt.datetime(2300, 1, 1, tzinfo=dt.UTC)
SEVEN = dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=dt.UTC)
GIVEN = [
    (7, SEVEN),
    (0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    (int(LATE.timestamp()), LATE),
    (AWARE, AWARE),
    (AWARE.replace(tzinfo=None), AWARE),
    (AWARE.astimezone(dt.timezone(dt.timedelta(hours=5))), AWARE),
    (AWARE.replace(microsecond=999_999), AWARE),
    (LATE, LATE),
    (AWARE.timetuple(), AWARE),
    (time.gmtime(7), SEVEN),
]


@pytest.mark.parametrize(("given", "found"), GIVEN)
def test_a_timestamp_comes_back_as_a_datetime(queue: shmbroker.Queue, given: Any, found: dt.datetime) -> None:  # noqa: ANN401
    """Integers are POSIX seconds, as pika has them; what has no zone is in UTC."""
    others: dict[str, Any] = {"content_type": "text/plain", "priority": 3, "type": "T", "headers": {"T": b"T"}}
    queue.put(b"A", properties=BasicProperties(timestamp=given, **others))
    back = queue.get(auto_ack=True).properties
    assert back == BasicProperties(timestamp=found, **others)


@pytest.mark.parametrize(("given", "found"), [pair for pair in GIVEN if not isinstance(pair[0], int)])
def test_a_time_among_the_headers(queue: shmbroker.Queue, given: Any, found: dt.datetime) -> None:  # noqa: ANN401
    """Also in tables and lists; those after 2106 are no milliseconds."""
    queue.put(b"A", headers={"at": given, "list": [1, given, {"in": given}], "table": {"T": given}})
    assert queue.get(auto_ack=True).headers == {"at": found, "list": [1, found, {"in": found}], "table": {"T": found}}


@pytest.mark.parametrize("value", [True, 1.5, "7", -1, 253_402_300_800, dt.datetime(1900, 1, 1, tzinfo=dt.UTC), (1, 2)])
def test_what_is_no_time(value: object) -> None:
    """The error names the property, the value and what is allowed."""
    with pytest.raises(TypeError, match=r"timestamp=.*: .* (is needed|is allowed)"):
        properties.encode(BasicProperties(timestamp=value))
