# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.chaos.stopping PID FOLDER`: a director that has stopped a process, and does nothing more."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sys
from pathlib import Path

from tests.chaos.journal import Journal
from tests.chaos.stage import HOUSEKEEPER, Player, Stage


def main(pid: int, folder: Path) -> None:
    """Stops it, says the number of its guard, and waits for what may come."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    with Journal(folder / "director") as journal, Stage("none", folder, journal, random.Random(0)) as players:
        players.stop_housekeeper(Player(HOUSEKEEPER, pid), 60)
        (guard,) = multiprocessing.active_children()
        sys.stdout.write(f"{guard.pid}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
