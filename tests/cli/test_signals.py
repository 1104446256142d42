# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: when they do, and what is as it was afterwards."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
from pathlib import Path

import pytest

from shmbroker_cli.signals import Stopper, until_told_to_stop

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_the_block_without_an_error(number: int) -> None:
    """What comes after it does not run, and the handlers are those from before."""
    before = [signal.getsignal(one) for one in NUMBERS]
    done = []
    with until_told_to_stop() as stopper:
        assert [signal.getsignal(one) for one in NUMBERS] == [stopper.on_signal] * 2
        signal.raise_signal(number)
        done.append("after it")
    assert (done, stopper.told) == ([], False)
    assert [signal.getsignal(one) for one in NUMBERS] == before


def test_an_error_of_the_block_is_none_of_its_business() -> None:
    """The handlers are those from before all the same."""
    before = [signal.getsignal(one) for one in NUMBERS]
    with pytest.raises(ValueError, match="mine"), until_told_to_stop():  # noqa: PT012 - its block raises
        message = "mine"
        raise ValueError(message)
    assert [signal.getsignal(one) for one in NUMBERS] == before


def test_in_another_thread_it_handles_nothing() -> None:
    """Signals are the main thread's; the block simply runs."""
    before = [signal.getsignal(one) for one in NUMBERS]
    seen: list[object] = []

    def run() -> None:
        with until_told_to_stop() as stopper:
            seen.append(stopper.told)
            seen.append([signal.getsignal(one) for one in NUMBERS] == before)
        seen.append("end")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False, True, "end"]


def test_a_first_signal_waits_for_the_end_of_a_message() -> None:
    """Then it ends all; one that comes between two messages does so in its place."""
    stopper, done = Stopper(), []
    with stopper.finishing():
        done.append("first")
    with pytest.raises(KeyboardInterrupt), stopper.finishing():  # noqa: PT012 - its block raises
        stopper.on_signal(signal.SIGTERM, None)
        done.append("second")
    assert (done, stopper.told) == (["first", "second"], True)
    with pytest.raises(KeyboardInterrupt):
        stopper.on_signal(signal.SIGTERM, None)


def test_a_signal_between_messages_ends_all_in_its_place() -> None:
    """Also after a message that was finished."""
    stopper = Stopper()
    with pytest.raises(KeyboardInterrupt):
        stopper.on_signal(signal.SIGINT, None)
    with stopper.finishing():
        pass
    with pytest.raises(KeyboardInterrupt):
        stopper.on_signal(signal.SIGINT, None)
    assert not stopper.told


def test_a_second_signal_waits_for_nothing() -> None:
    """It ends the message in hand."""
    stopper, done = Stopper(), []
    with pytest.raises(KeyboardInterrupt), stopper.finishing():  # noqa: PT012 - its block raises
        stopper.on_signal(signal.SIGTERM, None)
        done.append("first")
        stopper.on_signal(signal.SIGTERM, None)
        done.append("second")
    assert done == ["first"]


def test_an_error_of_a_message_is_told_and_not_the_signal() -> None:
    """And the next signal is no longer one in the middle of a message."""
    stopper = Stopper()
    with pytest.raises(ValueError, match="mine"), stopper.finishing():  # noqa: PT012 - its block raises
        stopper.on_signal(signal.SIGTERM, None)
        message = "mine"
        raise ValueError(message)
    with pytest.raises(KeyboardInterrupt):
        stopper.on_signal(signal.SIGTERM, None)


def descriptors() -> set[str]:
    """Return which descriptors this process has."""
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_noting_a_signal_makes_its_descriptor_readable(recwarn: pytest.WarningsRecorder) -> None:
    """It raises nothing; nothing of it stays, and signals wake what they woke before."""
    before = descriptors()
    outer_readable, outer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(outer)
    try:
        with until_told_to_stop() as stopper, stopper.noting() as readable:
            assert (os.get_blocking(readable), os.get_inheritable(readable)) == (False, False)
            assert select.select([readable], [], [], 0)[0] == []
            signal.raise_signal(signal.SIGTERM)
            assert select.select([readable, outer_readable], [], [])[0] == [readable]
            assert stopper.told
        assert signal.set_wakeup_fd(outer) == outer
        with until_told_to_stop():
            signal.raise_signal(signal.SIGTERM)
        assert os.read(outer_readable, 9) == bytes([signal.SIGTERM])
    finally:
        signal.set_wakeup_fd(-1)
        os.close(outer)
        os.close(outer_readable)
    assert descriptors() == before
    assert not recwarn.list


def test_noting_more_signals_than_can_be_noted_is_no_matter(capfd: pytest.CaptureFixture[str]) -> None:
    """The descriptor is readable already: nothing is said of it."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with Stopper().noting() as readable:
            for _ in range(fcntl.fcntl(readable, fcntl.F_GETPIPE_SZ) + 1):
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert capfd.readouterr() == ("", "")


def test_after_noting_a_signal_ends_all_in_its_place() -> None:
    """The block is no longer one to be finished; a second signal within it ends it, too."""
    stopper = Stopper()
    with stopper.noting():
        pass
    with pytest.raises(KeyboardInterrupt):
        stopper.on_signal(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt), stopper.noting():  # noqa: PT012 - its block raises
        stopper.on_signal(signal.SIGTERM, None)
        stopper.on_signal(signal.SIGTERM, None)
    assert stopper.told


def test_noting_in_another_thread_takes_no_signals() -> None:
    """Those are the main thread's."""
    before = descriptors()
    seen: list[object] = []

    def run() -> None:
        with Stopper().noting() as readable:
            seen.append(select.select([readable], [], [], 0)[0])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [[]]
    assert descriptors() == before
