# SPDX-License-Identifier: Apache-2.0
"""Housekeepers are started by programs of all kinds: with the right interpreter, or not at all, and that is logged."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import cffi
import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import _native_message
from shmbroker._core import segments
from shmbroker._core.housekeeper import started, starting
from shmbroker._housekeeper import launch

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTS = """
    import sys
    broker = sys.argv[1]
    import shmbroker
    with shmbroker.connect(broker) as connection:
        connection.queue("q").put(b"A")
"""


def run(source: str, broker: str, *flags: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program."""
    command = [sys.executable, *flags, "-c", textwrap.dedent(source), broker]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)  # type: ignore[call-overload,no-any-return]


def is_served(broker: str) -> bool:
    """Whether a housekeeper runs."""
    return shmbroker.Broker(broker).statistics().housekeeper_pid != 0


COUNTS = """
    import sys
    import shmbroker
    from shmbroker._housekeeper import launch
    starts, start = [], launch.start_housekeeper
    launch.start_housekeeper = lambda *given, **options: starts.append(given) or start(*given, **options)
    print("ready", flush=True)
    sys.stdin.readline()
    with shmbroker.connect(sys.argv[1], create=True):
        print(len(starts), flush=True)
        sys.stdin.readline()
"""


def told_of(broker: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of this broker; housekeepers of other tests may come to their ends meanwhile."""
    return [text for text in (record.getMessage() for record in caplog.records) if f"'{broker}'" in text]


FROZEN = """
import sys
with open({count!r}, "a") as file:
    file.write("x")
sys.executable = {app!r}
{frozen}
import shmbroker
with shmbroker.connect({broker!r}) as connection:
    connection.queue("q").put(b"A")
"""


@pytest.mark.parametrize("frozen", ["sys.frozen = True", "__compiled__ = True"])
def test_a_frozen_program_is_started_once(tmp_path: Path, broker_name: str, frozen: str) -> None:
    """It says that it can start no housekeeper, and does not start itself; messages flow."""
    count, app = tmp_path / "count", tmp_path / "python"
    source = FROZEN.format(count=str(count), app=str(app), frozen=frozen, broker=broker_name)
    (tmp_path / "frozen.py").write_text(source)
    app.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/frozen.py "$@"\n')
    app.chmod(0o755)
    done = subprocess.run([app], capture_output=True, text=True, check=True)
    assert count.read_text() == "x"
    assert f"no housekeeper can be started for broker '{broker_name}': this program is frozen" in done.stderr
    with shmbroker.connect(broker_name, create=False) as connection:
        assert len(connection.queue("q")) == 1


def test_a_program_that_is_started_in_the_place_of_a_housekeeper(tmp_path: Path, broker_name: str) -> None:
    """It looks like an interpreter and is none: it starts no further one."""
    count, app = tmp_path / "count", tmp_path / "python"
    (tmp_path / "app.py").write_text(FROZEN.format(count=str(count), app=str(app), frozen="", broker=broker_name))
    app.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/app.py "$@"\n')
    app.chmod(0o755)
    done = subprocess.run([app], capture_output=True, text=True, check=True, env={**os.environ, launch.MARK: "other"})
    assert count.read_text() == "x"
    assert "was started itself in the place of a housekeeper of broker 'other'" in done.stderr


NO_THREAD = """
import os
import sys
import threading
import shmbroker
threading.stack_size(1 << 46)  # the kernel has no room for it
with shmbroker.connect(sys.argv[1]) as connection:
    connection.queue("q").put(b"A")
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child", end="")
"""


def test_a_program_that_can_start_no_thread(broker_name: str) -> None:
    """It leaves no housekeeper whose errors nothing reads, and says why; messages flow."""
    done = run(NO_THREAD, broker_name)
    assert done.stdout == "no child"
    reason = "this process cannot start a thread that reads its errors: can't start new thread"
    assert f"no housekeeper can be started for broker '{broker_name}': {reason}. Messages flow" in done.stderr
    assert not is_served(broker_name)


def test_a_program_that_looks_like_an_interpreter(tmp_path: Path, broker_name: str) -> None:
    """It is started once, in the place of a housekeeper, and says so then: it starts no further one."""
    count, said, app = tmp_path / "count", tmp_path / "said", tmp_path / "python"
    source = FROZEN.format(count=str(count), app=str(app), frozen="", broker=broker_name)
    (tmp_path / "app.py").write_text(
        f"import logging, os\nlogging.basicConfig(filename={str(said)!r})\n"
        f"if os.path.exists({str(count)!r}) and os.path.getsize({str(count)!r}) == 3:\n    raise SystemExit\n{source}"
    )
    app.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/app.py "$@"\n')
    app.chmod(0o755)
    subprocess.run([app], check=True)
    eventually(lambda: "started itself in the place of a housekeeper" in said.read_text(), "the second one to say so")
    assert count.read_text() == "xx"


@pytest.mark.parametrize("executable", ["''", "None", "'/bin/true'"], ids=["empty", "none", "another program"])
def test_an_embedded_interpreter(broker_name: str, executable: str) -> None:
    """Without `sys.executable`, or with that of the program that embeds it, the interpreter beside it serves."""
    source = textwrap.dedent(CONNECTS).replace(
        "import shmbroker", f"sys.executable = {executable}\nimport shmbroker", 1
    )
    run(source, broker_name)
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    shmbroker.Broker(broker_name).stop()


@pytest.mark.parametrize("flags", [("-I",), ("-E", "-s"), ("-B", "-P")])
def test_flags_of_the_interpreter(broker_name: str, flags: tuple[str, ...]) -> None:
    """The housekeeper of an isolated program is isolated, too, and finds the package."""
    run(CONNECTS, broker_name, *flags)
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    pid = shmbroker.Broker(broker_name).statistics().housekeeper_pid
    assert set(flags) <= set(Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
    shmbroker.Broker(broker_name).stop()


def test_where_an_interpreter_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs us; else the one beside the environment, that of the installation, and what the process runs."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [tmp_path / where / "bin" / name for where in ("runs", "environment", "installation", "process")]
    for place in places:
        place.parent.mkdir(parents=True)
        place.touch(mode=0o755)
    found = []
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "executable", str(places[0]))
        elsewhere.setattr(sys, "exec_prefix", str(tmp_path / "environment"))
        elsewhere.setattr(sys, "base_exec_prefix", str(tmp_path / "installation"))
        elsewhere.setattr(launch.os.path, "realpath", lambda path: str(places[3]) if path == "/proc/self/exe" else path)
        for place in places:
            found.append(launch.interpreter())
            place.unlink()
        with pytest.raises(launch.CannotStartError, match=r"no Python interpreter was found, sys\.executable is "):
            launch.interpreter()
    assert found == list(map(str, places))


def test_what_lies_beside_a_script(broker_name: str, tmp_path: Path) -> None:
    """It is no module of the standard library for the housekeeper, though the script's folder is searched."""
    (tmp_path / "signal.py").write_text("raise SystemExit('the folder of the script is searched first')")
    (tmp_path / "main.py").write_text(
        textwrap.dedent(CONNECTS)
        .replace("import shmbroker", "here = sys.path.pop(0)\nimport shmbroker", 1)
        .replace("with ", "sys.path.insert(0, here)\nwith ", 1)
    )
    subprocess.run([sys.executable, tmp_path / "main.py", broker_name], check=True)
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    pid = shmbroker.Broker(broker_name).statistics().housekeeper_pid
    assert str(tmp_path) in Path(f"/proc/{pid}/cmdline").read_text()
    shmbroker.Broker(broker_name).stop()


def test_without_site(broker_name: str) -> None:
    """With `-S` the package is found where the program found it."""
    run(textwrap.dedent(CONNECTS).replace("import sys\n", "import sys, site; site.main()\n", 1), broker_name, "-S")
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    shmbroker.Broker(broker_name).stop()


def test_a_package_that_only_the_program_finds(broker_name: str, tmp_path: Path) -> None:
    """Without `site` the housekeeper does without it, too, and finds the package in the places of the program."""
    shutil.copytree(Path(shmbroker.__file__).parent, tmp_path / "shmbroker")
    built = Path(_native_message.__file__).parent
    for extension in built.rglob("*.so"):
        shutil.copy(extension, tmp_path / "shmbroker" / extension.relative_to(built))
    places = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({str(Path(cffi.__file__).parents[1])!r})\n"
    )
    run(textwrap.dedent(CONNECTS).replace("import sys\n", places, 1), broker_name, "-S")
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    pid = shmbroker.Broker(broker_name).statistics().housekeeper_pid
    assert "-S" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert str(tmp_path) in Path(f"/proc/{pid}/maps").read_text()
    shmbroker.Broker(broker_name).stop()


def test_another_folder_and_no_environment(broker_name: str, tmp_path: Path) -> None:
    """What the program finds in places that are relative, its housekeeper finds there; a bare environment is enough."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "signal.py").write_text("raise SystemExit('the folder of the script is not searched first')")
    source = textwrap.dedent(CONNECTS).replace(
        "import shmbroker", "import signal; sys.path.insert(0, 'modules')\nimport shmbroker", 1
    )
    run(source, broker_name, "-P", cwd=tmp_path, env={})
    eventually(lambda: is_served(broker_name), "a housekeeper to serve")
    pid = shmbroker.Broker(broker_name).statistics().housekeeper_pid
    assert str(tmp_path / "modules") in Path(f"/proc/{pid}/cmdline").read_text()
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")  # so that the folder's file system can be unmounted
    shmbroker.Broker(broker_name).stop()


def test_what_a_housekeeper_says_is_logged(
    broker_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lines come to the logger `shmbroker` of the process that started it."""
    monkeypatch.setattr(launch, "_RUN", "import sys; print('what it\\nsays', file=sys.stderr); sys.exit(3)")
    with caplog.at_level(logging.WARNING, "shmbroker"):
        with pytest.raises(shmbroker.BrokerError, match="ended immediately, with status 3"):
            shmbroker.Broker(broker_name, memory="32M").start()
        eventually(lambda: len(told_of(broker_name, caplog)) == 3, "all to be logged")
    says = f"the housekeeper of broker '{broker_name}' says: "
    first, second, third = told_of(broker_name, caplog)
    assert (first, second) == (f"{says}what it", f"{says}says")
    assert "ended with status 3" in third


def nothing_found() -> str:
    """In the place of the search for an interpreter."""
    msg = "there is none"
    raise launch.CannotStartError(msg)


def no_process(*_: object, **__: object) -> None:
    """In the place of the start of a process."""
    raise OSError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    "case",
    [
        ("interpreter", nothing_found, "there is none"),
        ("subprocess.Popen", no_process, "Resource temporarily unavailable"),
    ],
)
def test_a_housekeeper_that_cannot_be_started(
    broker_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    case: tuple[str, Callable[..., object], str],
) -> None:
    """A client goes on without one and logs why, once; who starts a broker is told."""
    where, what, why = case
    monkeypatch.setattr(f"shmbroker._housekeeper.launch.{where}", what)
    with caplog.at_level(logging.WARNING, "shmbroker"):
        for _ in range(3):
            with shmbroker.connect(broker_name) as connection:
                connection.queue("q").put(b"A")
    (told,) = told_of(broker_name, caplog)
    assert why in told
    with pytest.raises(shmbroker.BrokerError, match=f"cannot be started: .*{why}"):
        shmbroker.Broker(broker_name).start()


def test_programs_that_connect_together_start_one_housekeeper(broker_name: str) -> None:
    """Each of them finds that there is none yet; each start takes a tenth of a second of a processor."""
    shmbroker.Broker(broker_name).create()
    command = [sys.executable, "-c", textwrap.dedent(COUNTS), broker_name]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as opened:
        programs = [
            opened.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)) for _ in range(6)
        ]

        def said() -> list[str]:
            return [program.stdout.readline() for program in programs]  # type: ignore[union-attr]

        def go_on() -> None:
            for program in programs:
                program.stdin.write("\n")  # type: ignore[union-attr]
                program.stdin.flush()  # type: ignore[union-attr]

        assert said() == ["ready\n"] * 6
        go_on()
        assert sum(map(int, said())) == 1
        eventually(lambda: is_served(broker_name))
        go_on()


def test_the_lock_of_a_start_lasts_as_long_as_what_inherited_it(broker_name: str) -> None:
    """A process that is killed while it starts leaves the start to another one."""
    shmbroker.Broker(broker_name).create()
    path = segments.path_of(broker_name)
    with starting(path) as descriptor:
        assert descriptor is not None
        child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
        with starting(path) as second:
            assert second is None
    with child, starting(path) as third:
        assert third is None
        child.kill()
    with starting(path) as fourth:
        assert fourth is not None


def test_a_housekeeper_that_serves_ends_the_lock_of_its_start(broker_name: str) -> None:
    """A duplicate, which a fork of another thread makes, does not keep it."""
    shmbroker.Broker(broker_name).create()
    path = segments.path_of(broker_name)
    with starting(path) as descriptor:
        assert descriptor is not None
        duplicate = os.dup(descriptor)
        started(os.dup(descriptor))
        with starting(path) as second:
            assert second is not None
    os.close(duplicate)
