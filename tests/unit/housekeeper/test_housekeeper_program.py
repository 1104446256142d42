# SPDX-License-Identifier: Apache-2.0
"""`python -m shmbroker._housekeeper.housekeeper`: when it serves, what it says, and with which status it ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker import exceptions
from shmbroker._core import segments
from shmbroker._housekeeper import housekeeper

if TYPE_CHECKING:
    from shmbroker._housekeeper.housekeeper import EndFlag


class Scripted:
    """A housekeeper whose answers are given."""

    begins = stands_in = True
    error: Exception | None = None
    deeds: list[Any]

    def __init__(self, broker: str, name: str) -> None:
        self.deeds.append((broker, name))
        if self.error is not None:
            raise self.error

    def begin(self) -> bool:
        """Serves, or not."""
        return self.begins

    def stand_in(self) -> bool:
        """The same beside another one."""
        return self.stands_in

    def close(self) -> None:
        """Ends."""
        self.deeds.append("closed")

    def run(self, ended: EndFlag, *, linger: float | None) -> None:
        """Serves."""
        self.deeds.append((ended.is_set(), linger))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Have the program run a housekeeper whose answers are given."""

    class One(Scripted):
        deeds: list[Any] = []  # noqa: RUF012 (one for each test)

    monkeypatch.setattr(housekeeper, "Housekeeper", One)
    monkeypatch.setattr(signal, "signal", lambda number, _: One.deeds.append(number.name))
    return One


@pytest.mark.parametrize(("automatic", "name"), [([], "housekeeper"), (["--automatic"], segments.AUTOMATIC)])
@pytest.mark.parametrize("begins", [True, False])
def test_the_program_serves(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, automatic: list[str], name: str, *, begins: bool
) -> None:
    """It says when it is ready, and stays for ten seconds without a client; others see who asked for it.

    When it serves, it releases the lock that it inherited.
    """
    scripted.begins = begins
    monkeypatch.setattr(housekeeper, "started", scripted.deeds.append)
    arguments = ["b", *automatic, *(["--starting=7"] if automatic else [])]
    assert housekeeper.main(arguments, lambda: scripted.deeds.append("ready")) == 0
    inherited = [7] if automatic else []
    assert scripted.deeds == ["SIGTERM", "SIGINT", ("b", name), *inherited, "ready", (False, 10.0)]


def test_the_program_is_not_needed(scripted: type[Scripted]) -> None:
    """Another one serves, or stands in: it ends."""
    scripted.begins = scripted.stands_in = False
    assert housekeeper.main(["b"], lambda: scripted.deeds.append("ready")) == 1
    assert scripted.deeds[2:] == [("b", "housekeeper"), "closed"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (exceptions.BrokerNotFound(404, "no broker"), ""),
        (exceptions.ConnectionClosedByBroker(320, "purged"), ""),
        (exceptions.NotAllowed(530, "too many"), "530 too many\n"),
        (exceptions.LayoutMismatch(541, "another layout"), "541 another layout\n"),
        (exceptions.OutOfMemory("no memory"), "no memory\n"),
    ],
)
def test_the_program_says_why_it_cannot_serve(
    scripted: type[Scripted], capsys: pytest.CaptureFixture[str], error: Exception, told: str
) -> None:
    """To the process that started it; that the broker is gone is no error."""
    scripted.error = error
    assert housekeeper.main(["b"], lambda: scripted.deeds.append("ready")) == 1
    assert capsys.readouterr().err == told
    assert scripted.deeds[2:] == [("b", "housekeeper")]


def test_a_signal_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two, at any time."""
    handlers: dict[int, Any] = {}
    seen: list[bool] = []

    class Signalled(Scripted):
        deeds: list[Any] = []  # noqa: RUF012

        def run(self, ended: EndFlag, *, linger: float | None) -> None:
            """Is told to end."""
            assert linger is not None
            seen.append(ended.is_set())
            handlers[signal.SIGTERM](0, None)
            seen.append(ended.is_set())

    monkeypatch.setattr(housekeeper, "Housekeeper", Signalled)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    assert housekeeper.main(["b"]) == 0
    assert (seen, len(handlers)) == ([False, True], 2)
