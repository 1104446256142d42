# SPDX-License-Identifier: Apache-2.0
"""Flips bits of a store, one at a time, and reads it after each: an error, or all messages as they were.

    python tests/unit/storage/damage.py FOLDER FLIPS all|pages

`all` takes any byte of the file, `pages` those of the pages that lead to the values. The last place that was written to
the standard output is where the process crashed, if it did.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker.storage import rows
from shmbroker.storage.database import Database
from shmbroker.storage.reading import Reader
from shmbroker.storage.verifying import verified
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.storage.batch import Batch

PAGE = 4096
TREE = {1, 2}  # the flags of branch and leaf pages
COUNT = 200
Found = list[tuple[int, bytes, bytes]]


def head_of(number: int) -> bytes:
    """The heads of a row with one message without names."""
    entry = struct.pack("<QQQQQIIIHHBBBBI", 3000 + number, 0, 0, 1, 2**64 - 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return struct.pack("<HHIQQQQ", rows.FORMAT, 1, 0, number * rows.LEAF, 1, 3000 + number, 5) + entry


@contextlib.contextmanager
def written(database: Database) -> Iterator[Batch]:
    """A batch that the database has when the block ends."""
    with contextlib.closing(Writer(database)) as writer:
        with writer.turn() as batch:
            yield batch
        writer.settle()


def fill(folder: Path) -> None:
    """Makes a store with rows."""
    chance = random.Random(1)
    with Database(folder, owner="a test") as made, written(made) as batch:
        batch.put_queue(7, b"record")
        for number in range(COUNT):
            heads = bytearray(rows.SEAL) + head_of(number)
            bodies = bytearray(rows.SEAL) + chance.randbytes(3000 + number)
            batch.put_row(7, number * rows.LEAF, memoryview(heads), memoryview(bodies))
        batch.set_tail(7, COUNT * rows.LEAF)


def read(folder: Path) -> Found:
    """All that the store has."""
    with Database(folder) as database, database.read() as transaction:
        reader = Reader(database, transaction)
        found = [(number, record, b"") for number, record in reader.queues().items()]
        found += [(tail, b"", b"") for tail in reader.tails(7)]
        found += [(one.first, bytes(one.heads), bytes(one.bodies)) for one in reader.rows_from(7)]
        return found


def main(folder: Path, flips: int, part: str) -> int:
    """Flips bits; returns the number of wrong results."""
    fill(folder)
    file = folder / "data.mdb"
    whole = file.read_bytes()
    expected = read(folder)
    tree = [at for at in range(0, len(whole), PAGE) if struct.unpack_from("<H", whole, at + 10)[0] in TREE]
    chance = random.Random(2)
    wrong = 0
    for _ in range(flips):
        at = chance.randrange(len(whole))
        if part == "pages":
            at = chance.choice(tree) + chance.choice([chance.randrange(200), chance.randrange(PAGE)])
        bit = 1 << chance.randrange(8)
        sys.stdout.write(f"{at} {bit}\n")
        sys.stdout.flush()
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(bytes([whole[at] ^ bit]))
        try:
            verified(folder)
            found = read(folder)
        except exceptions.StoreError:
            pass
        else:
            wrong += found != expected
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(whole[at : at + 1])
    return wrong


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    sys.exit(main(target, int(sys.argv[2]), sys.argv[3]))
