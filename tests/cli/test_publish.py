# SPDX-License-Identifier: Apache-2.0
"""`shmbroker publish`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import shmbroker


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """Return what is in a queue, in order."""
    return [bytes(message) for message in queue.browse()]


def test_a_body_from_the_command_line(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """It is sent as UTF-8."""
    assert cli("publish", "jobs", "héllo").code == 0
    assert bodies(jobs) == ["héllo".encode()]


def test_an_empty_body_is_a_message_too(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """An empty argument is not a missing one."""
    assert cli("publish", "jobs", "").code == 0
    assert bodies(jobs) == [b""]


def test_a_dash_reads_standard_input_as_one_message(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Bytes are sent as they are, line breaks too."""
    assert cli("publish", "jobs", "-", given=b"a\nb\xff\n").code == 0
    assert bodies(jobs) == [b"a\nb\xff\n"]


def test_a_file_is_one_message(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Its content is not changed."""
    path = tmp_path / "body"
    path.write_bytes(b"\x00\r\n\xff")
    assert cli("publish", "jobs", "--file", str(path)).code == 0
    assert bodies(jobs) == [b"\x00\r\n\xff"]


def test_lines_are_a_message_each(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Line breaks are left out, empty lines are not, a last line needs no break."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\n\nthree")
    ran = cli("publish", "jobs", "--lines", str(path), "--json")
    assert ran.facts == {"queue": "jobs", "published": 3}
    assert bodies(jobs) == [b"one", b"", b"three"]


def test_many_lines_of_standard_input_keep_their_order(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """More than one batch."""
    expected = [str(number).encode() for number in range(1000)]
    ran = cli("publish", "jobs", "--lines", "-", given=b"\n".join(expected))
    assert "1000 messages published" in ran.out
    assert bodies(jobs) == expected


def test_properties_are_sent_along(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """An id and a content type."""
    cli("publish", "jobs", "{}", "--message-id", "7", "--content-type", "text/json")
    (message,) = jobs.browse()
    assert message.properties.message_id == "7"
    assert message.properties.content_type == "text/json"


@pytest.mark.parametrize("arguments", [(), ("x", "--file", "f"), ("x", "--lines", "-")])
def test_exactly_one_source_is_needed(
    cli: Callable[..., Any], jobs: shmbroker.Queue, arguments: tuple[str, ...]
) -> None:
    """None, or two, is wrong usage."""
    assert cli("publish", "jobs", *arguments).is_refused("BODY", code=2)
    assert len(jobs) == 0


@pytest.mark.usefixtures("jobs")
def test_a_missing_file_is_refused(cli: Callable[..., Any]) -> None:
    """The line names the file."""
    assert cli("publish", "jobs", "--file", "/no/such").is_refused("/no/such")
    assert cli("publish", "jobs", "--lines", "/no/such").is_refused("/no/such")


@pytest.mark.usefixtures("broker")
def test_an_unknown_queue_is_refused(cli: Callable[..., Any]) -> None:
    """Publishing does not make queues."""
    assert cli("publish", "nowhere", "x").is_refused("nowhere")
    assert cli("queue", "list", "--json").facts == []


def test_a_full_queue_is_refused_when_time_is_up(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """With `--timeout 0` at once; lines tell how many came through."""
    with broker.connect() as connection:
        queue = connection.queue("jobs", max_length=2)
        full = cli("publish", "jobs", "--lines", "-", "--timeout", "0", given="1\n2\n3")
        assert full.is_refused("2 published")
        assert cli("publish", "jobs", "4", "--timeout", "0").is_refused()
        assert bodies(queue) == [b"1", b"2"]
