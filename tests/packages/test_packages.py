# SPDX-License-Identifier: Apache-2.0
"""`make wheel`: what it builds is installed into empty environments, and works there."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import shmbroker

ROOT = Path(__file__).parents[2]
VERSION = shmbroker.__version__
COMPILERS = ("cc", "gcc", "clang", "c++")
MODULES = (".py", ".pyi", ".typed")
SOURCES = (*MODULES, ".c", ".h", ".txt", ".json")


def run(*command: str | Path, **environment: str) -> str:
    """Return what the program printed; it must end well."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make wheel` fills."""
    folder = tmp_path_factory.mktemp("packages") / "dist"
    run("make", "--directory", ROOT, "--no-print-directory", "wheel", f"DIST={folder}", MAKEFLAGS="")
    return folder


def installed(what: Path, folder: Path, *options: str, **environment: str) -> Path:
    """Install a package into a new environment, and return the folder of its programs."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *options, what, **environment)
    return folder / "bin"


def works(programs: Path, **environment: str) -> None:
    """The package is imported from there, and the demonstration loses nothing."""
    origin = run(programs / "python", "-c", "import shmbroker; print(shmbroker.__file__)", **environment)
    assert Path(origin.strip()).is_relative_to(programs.parent)
    assert run(programs / "shmbroker", "--version", **environment) == f"shmbroker {VERSION}\n"
    assert "nothing lost, all counts right" in run(programs / "shmbroker", "demo", **environment)


def only(folder: Path, pattern: str) -> Path:
    """Return the only file of that kind."""
    (found,) = folder.glob(pattern)
    return found


def below(*folders: str) -> set[str]:
    """Return the source files of these folders."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.timeout(1800)
def test_the_wheel_serves_all_versions_of_python(built: Path) -> None:
    """It is for the stable ABI of Python 3.11, and for this C library and later; it has all modules, and no tests."""
    wheel = only(built, "*.whl")
    name = rf"shmbroker-{re.escape(VERSION)}-cp311-abi3-manylinux_\d+_\d+_{platform.machine()}"
    assert re.match(name, wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        found = {*archive.namelist()}
    modules = {name.removeprefix("cli/") for name in below("shmbroker", "cli", "pyspark_shmbroker")}
    assert {name for name in found if name.endswith(MODULES)} == modules
    assert {name.partition("/")[0].partition("-")[0] for name in found} == {
        *("shmbroker", "shmbroker_cli", "pyspark_shmbroker"),
    }


@pytest.mark.timeout(1800)
def test_the_sources_are_complete(built: Path) -> None:
    """All files of the C core and of the package, the licence, and what builds them."""
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    wanted = below("cffi_src", "shmbroker", "cli", "pyspark_shmbroker") | {"LICENSE", "README.md", "pyproject.toml"}
    assert wanted - found == set()


@pytest.mark.timeout(1800)
def test_the_wheel_needs_no_compiler(built: Path, tmp_path: Path) -> None:
    """In an empty environment without one it is installed, imported, and runs the demonstration."""
    alone = {"PATH": str(tmp_path / "new" / "bin")}
    programs = installed(only(built, "*.whl"), tmp_path / "new", "--only-binary", ":all:", **alone)
    assert [name for name in COMPILERS if shutil.which(name, path=alone["PATH"])] == []
    works(programs, **alone)


@pytest.mark.timeout(1800)
def test_the_sources_are_built_where_there_is_a_compiler(built: Path, tmp_path: Path) -> None:
    """In an empty environment they are built, installed, imported, and run the demonstration.

    The wheel above comes from the same sources, optimised. This build is not, which takes half the time.
    """
    unoptimised = "--config-settings=cmake.build-type=Debug"
    works(installed(only(built, "*.tar.gz"), tmp_path / "new", unoptimised))
