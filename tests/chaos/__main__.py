# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.chaos`: runs the chaos, has the oracle judge it, and prints a table. Exit status 0: all is well."""

from __future__ import annotations

import argparse
import faulthandler
import json
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import shmbroker
from tests.chaos.dead_letters.director import DeadLetterDirector
from tests.chaos.dead_letters.oracle import judge as judge_dead_letters
from tests.chaos.director import FACTS, MEMORY, Director, Facts
from tests.chaos.evidence import STORE, gather
from tests.chaos.features.director import FeatureDirector
from tests.chaos.features.oracle import judge as judge_features
from tests.chaos.oracle import judge
from tests.chaos.report import report
from tests.chaos.stored.director import StoredDirector
from tests.chaos.stored.oracle import judge as judge_stored
from tests.chaos.stored.plan import MEMORY as MEMORY_WITH_STORE

SECONDS_TO_CLEAR_UP = 600
PLAYS = {
    "queues": (Director, judge),
    "dead-letters": (DeadLetterDirector, judge_dead_letters),
    "features": (FeatureDirector, judge_features),
    "stored": (StoredDirector, judge_stored),
}


def main() -> int:
    """Reads the command line and does what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--play", choices=PLAYS, default="queues", help="the queues and the processes")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long processes are killed and stopped")
    parser.add_argument(
        "--seed", type=int, help="of what the director and the processes choose; when is left to chance"
    )
    parser.add_argument("--broker", help="its name")
    parser.add_argument("--memory", help=f"of the broker: {MEMORY}; with 64M it is full at times")
    parser.add_argument("--logs", type=Path, help="an empty folder for the journals; kept")
    parser.add_argument("--keep-memory", action="store_true", help="on a failure the broker's memory stays as it is")
    parser.add_argument("--spare-housekeeper", action="store_true", help="it is neither killed nor stopped")
    parser.add_argument("--judge", type=Path, metavar="LOGS", help="only judge the journals of an earlier run")
    arguments = parser.parse_args()
    if arguments.judge:
        return _judge(arguments.judge, arguments.play)
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    folder = arguments.logs or Path(tempfile.mkdtemp(prefix="shmbroker-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    stored = arguments.play == "stored"
    memory = arguments.memory or (MEMORY_WITH_STORE if stored else MEMORY)
    _say(f"{arguments.play}: seed {seed}, {arguments.seconds:.0f} seconds, {memory}, journals in {folder}")
    faulthandler.dump_traceback_later(arguments.seconds + SECONDS_TO_CLEAR_UP, exit=True)
    store = folder / STORE if stored else None
    if store is not None:
        store.mkdir()
    broker = shmbroker.Broker(arguments.broker or f"chaos-{secrets.token_hex(6)}", memory=memory, data_dir=store)
    failed = True
    try:
        facts = Facts(seed, arguments.seconds)
        PLAYS[arguments.play][0](broker, folder, facts, spare_housekeeper=arguments.spare_housekeeper).run()
        failed = _judge(folder, arguments.play) != 0
    finally:
        kept = failed and arguments.keep_memory
        broker.stop(purge=not kept)
        if kept:
            _say(f"the memory of broker {broker.name} is kept: shmbroker stop --purge --broker {broker.name}")
    if failed:
        _say(f"seed {seed}; the journals are kept in {folder}")
    elif not arguments.logs:
        shutil.rmtree(folder)
    return int(failed)


def _judge(folder: Path, play: str) -> int:
    facts = Facts(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
    evidence = gather(folder)
    judgement = PLAYS[play][1](evidence, facts)
    _say(report(evidence, facts, judgement))
    return int(bool(judgement.findings))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
