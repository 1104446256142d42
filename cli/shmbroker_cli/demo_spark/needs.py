# SPDX-License-Identifier: Apache-2.0
"""Checks that the machine has what Spark needs. Spark itself would report a lack in many lines."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from shmbroker_cli.errors import Refused

OLDEST_JAVA = 17
INSTALL_JAVA = "apt install openjdk-17-jre-headless"
INSTALL_SPARK = "pip install 'shmbroker[spark]'"


def check() -> None:
    """Look for Java, and for the packages of the extra `shmbroker[spark]`.

    Raises:
        Refused: If one is missing, or Java is too old or does not start; the text says how to get it.
    """
    version = _java_version()
    if version < OLDEST_JAVA:
        has = f"this is {version}" if version else "there is none"
        message = f"Spark needs Java {OLDEST_JAVA} or newer, and {has}: {INSTALL_JAVA}"
        raise Refused(message)
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        message = f"no {' and no '.join(missing)}: {INSTALL_SPARK}"
        raise Refused(message)


def _java_version() -> int:
    """Return the version of the Java that Spark will take; 0 if there is none.

    Raises:
        Refused: If Java does not start.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        return 0
    told = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)  # noqa: S603 (Spark runs it)
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if found is None:
        message = (
            f"{java} -version ended with exit code {told.returncode}: Spark needs a Java that runs: {INSTALL_JAVA}"
        )
        raise Refused(message)
    return int(found[1])
