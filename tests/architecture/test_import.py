# SPDX-License-Identifier: Apache-2.0
"""What `import shmbroker` imports: each module costs every program that uses the package."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Modules that the package did import once, and those that a small convenience would bring back.
SLOW = {
    *("ast", "asyncio", "base64", "calendar", "csv", "ctypes", "dataclasses", "dis", "email", "fnmatch", "getpass"),
    *("hashlib", "http", "inspect", "ipaddress", "json", "multiprocessing", "pathlib", "pickle", "platform", "random"),
    *("secrets", "shutil", "socket", "ssl", "statistics", "tempfile", "urllib", "uuid", "xml", "zipfile"),
    *("importlib.metadata", "importlib.resources"),
    # Libraries that only some calls need, and those of the command line and of Spark.
    *("cffi", "lark", "lmdb", "numpy", "pamqp", "pandas", "psutil", "pyarrow", "pyspark", "rich", "typer"),
    # Parts of the package that many programs never use.
    *("shmbroker.aio", "shmbroker.body_references", "shmbroker.columns", "shmbroker.leasing", "shmbroker.spark"),
    *("shmbroker.staging", "shmbroker.storage.database", "shmbroker.stores", "shmbroker.testing"),
    *("shmbroker.transfer", "shmbroker.workers", "shmbroker._housekeeper.housekeeper"),
}

# A program, after the import. The modules that the interpreter itself imports, for example for an editable install, do
# not count.
IMPORTED = """
import sys
before = set(sys.modules)
import shmbroker
{then}
after = set(sys.modules) - before
import json
print(json.dumps(sorted(after)))
"""

# The first message of a program. What it needs comes with the import, except what a rare argument needs.
FIRST_MESSAGE = """
with shmbroker.connect(sys.argv[1]) as connection:
    queue = connection.queue("q")
    queue.put(b"A")
    queue.get().ack()
"""


def imported(then: str = "", *arguments: str) -> set[str]:
    """Return the modules that a new interpreter has imported after `import shmbroker` and the following lines."""
    program = [sys.executable, "-c", IMPORTED.format(then=then), *arguments]
    return set(json.loads(subprocess.run(program, capture_output=True, text=True, check=True).stdout))


@pytest.fixture(scope="module")
def found() -> set[str]:
    """Return the modules that `import shmbroker` imports."""
    return imported()


def test_the_import_leaves_out_what_is_slow(found: set[str]) -> None:
    """`import shmbroker` imports no module that takes long, and that most programs do not need."""
    assert {name for name in found if any(name == slow or name.startswith(f"{slow}.") for slow in SLOW)} == set()


def test_the_import_is_seen(found: set[str]) -> None:
    """The list above is compared with what was imported: the package and its compiled modules are there."""
    assert {"shmbroker", "shmbroker.queue", "shmbroker._native"} <= found


def test_the_first_message_imports_nothing(found: set[str], broker_name: str) -> None:
    """Connecting, a put and a get import no module: the import is not merely put off, and no fork falls into it."""
    assert imported(FIRST_MESSAGE, broker_name) - found == set()
