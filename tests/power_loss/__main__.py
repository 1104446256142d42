# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.power_loss`: records a busy run, and loses power at many places. Exit status 0: all is well."""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

import shmbroker
from tests.power_loss.running import JOURNAL, Trial, record, records_of

SECONDS_ALLOWED = 3 * 3600


def main() -> int:
    """Reads the command line and does what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each of the two brokers is busy")
    parser.add_argument(
        "--kill-after", type=int, default=3_000, help="changes, and up to as many more, of a storekeeper"
    )
    parser.add_argument("--places", type=int, default=200, help="at which power is lost")
    parser.add_argument("--losses", type=int, default=10, help="at each place, each with other files")
    parser.add_argument("--every-broker", type=int, default=20, help="one of so many losses is read by a broker")
    parser.add_argument(
        "--every-second", type=int, default=20, help="one of so many is followed by one in the recovery"
    )
    parser.add_argument("--seed", type=int, help="of what is chosen; when clients act is left to chance")
    parser.add_argument("--broker", default=f"power-{secrets.token_hex(6)}", help="its name")
    parser.add_argument(
        "--unsynced", action="append", default=[], metavar="FILE", help="a fault: its syncs do not count"
    )
    parser.add_argument("--recorded", type=Path, metavar="FOLDER", help="of an earlier run, which is judged again")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty one for the journal and findings; kept")
    parser.add_argument("--show", type=Path, metavar="FOLDER", help="only print the records of an earlier run")
    arguments = parser.parse_args()
    if arguments.show:
        for line in records_of(arguments.show / JOURNAL):
            print(line)  # noqa: T201
        return 0
    faulthandler.dump_traceback_later(SECONDS_ALLOWED, exit=True)
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    folder = arguments.recorded or arguments.keep or Path(tempfile.mkdtemp(prefix="shmbroker-power-loss-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, in {folder}", flush=True)  # noqa: T201
    began = time.monotonic()
    try:
        if not arguments.recorded:
            record(folder.resolve(), arguments.broker, arguments.seconds, seed, arguments.kill_after)
        recorded = time.monotonic()
        trial = Trial(folder.resolve(), arguments.broker, seed, frozenset(arguments.unsynced))
        report = trial.run(
            arguments.places, arguments.losses, every_broker=arguments.every_broker, every_second=arguments.every_second
        )
    finally:
        if arguments.broker in shmbroker.brokers():  # a process has ended in the middle of it
            shmbroker.Broker(arguments.broker).stop(purge=True)
    print(report)  # noqa: T201
    print(f"recorded in {recorded - began:.0f} s, tried in {time.monotonic() - recorded:.0f} s")  # noqa: T201
    if not report.findings and not arguments.keep and not arguments.recorded:
        shutil.rmtree(folder)
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
