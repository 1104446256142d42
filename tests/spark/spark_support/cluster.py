# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of Spark on this machine: a master, and a worker on each of its hosts.

Where it is allowed, a host is one in truth as far as brokers go: it has a /dev/shm of its own, a name, and a kernel
that seems to have been started at another time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPARK_HOME = Path(pyspark.__file__).parent
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
SERVERS = str(Path(__file__).parents[1] / "servers.py")
ALONE = """
mount -t tmpfs -o size=128m tmpfs /dev/shm && mount --bind "$0" /proc/sys/kernel/random/boot_id && hostname "$1" &&
shift && exec "$@"
"""
READY = """
import sys, time
import shmbroker
is_served = False
while not is_served:
    try:
        with shmbroker.connect(sys.argv[1], create=False) as connection:
            connection.queue("out")
            is_served = any(one.queue == "requests" for one in connection.consumers())
    except shmbroker.BrokerNotFound:
        time.sleep(0.05)
"""
COUNT = """
import sys
import shmbroker
with shmbroker.connect(sys.argv[1], create=False) as connection:
    print(len(connection.queue("out", passive=True)))
"""
PURGE = "import shmbroker, sys; shmbroker.Broker(sys.argv[1]).stop(purge=True)"
_NOT_SHIPPED = ("tests", "include", "includes", "src", "__pycache__", "libarrow_flight", "libarrow_s3")


class Host:
    """A worker of the cluster with a broker, which its environment names, and a process there that serves.

    Attributes:
        broker: the name of its broker.
        name: the host's.
        is_alone: it is a host in truth.
    """

    def __init__(self, folder: Path, name: str, *, alone: bool) -> None:
        self.broker, self._folder = f"t-{uuid.uuid4().hex[:16]}", folder
        boot = folder / f"{name}.boot"
        boot.write_text(f"{uuid.uuid4()}\n", "ascii")
        prefix = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", ALONE, str(boot), name]
        self.is_alone = alone and _works([*prefix, "true"])
        self.name = name if self.is_alone else socket.gethostname()
        self._prefix = prefix if self.is_alone else []
        self._inside: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []

    def join(self, master: str, environment: dict[str, str]) -> None:
        """Starts its worker, and then its broker and who serves there."""
        work = str(self._folder / f"{self.broker}.work")
        command = [SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", master, "--host", "127.0.0.1"]
        command += ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", work]
        named = environment | {"SHMBROKER_BROKER": self.broker}
        self.started.append(_started([*self._prefix, *command], self._folder / f"{self.broker}.log", named))
        if self.is_alone:
            pid = self.started[0].pid
            until_true(lambda: _host_of(pid) == self.name)  # the last thing it does before it becomes the worker
            self._inside = ["nsenter", "--target", str(pid), "--mount", "--uts"]
        command = [sys.executable, SERVERS, self.broker, "requests", "signed", self.broker]
        self.started.append(_started([*self._inside, *command], self._folder / f"{self.broker}.served", environment))

    def wait(self) -> None:
        """Returns when its broker is there, with a queue "out", and is served; or if that cannot be any more."""
        ready = subprocess.Popen([*self._inside, sys.executable, "-c", READY, self.broker])
        try:
            until_true(lambda: ready.poll() is not None or any(one.poll() is not None for one in self.started))
        finally:
            _end(ready)
        assert ready.returncode == 0, self._folder

    def count_out(self) -> int:
        """How many messages queue "out" of its broker has."""
        command = [*self._inside, sys.executable, "-c", COUNT, self.broker]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    def leave(self) -> None:
        """Ends all of it; the broker is purged while the worker still is, which keeps the host."""
        worker, *others = self.started
        for process in others:
            _end(process)
        subprocess.run([*self._inside, sys.executable, "-c", PURGE, self.broker], check=False, capture_output=True)
        _end(worker)


class Cluster:
    """A master and hosts, for a ``with`` block; they have joined, and serve, when it begins."""

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        self._folder, self.hosts = folder, hosts
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.environment = os.environ | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
        }
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the master."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        command = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--webui-port", "0"]
        try:
            self._master = _started(command, self._folder / "master.log", self.environment)
            for host in self.hosts:
                host.join(self.url, self.environment)
            for host in self.hosts:
                host.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            if host.started:
                host.leave()
        if self._master is not None:
            _end(self._master)


def environment_archive(folder: Path) -> Path:
    """What `venv-pack` would make: a virtual environment, with what executors need, and nothing of Spark."""
    made, archive = folder / "environment", folder / "environment.tar.gz"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(made)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"lib/{version}/site-packages"
    natives = sorted({_file_of(f"shmbroker.{name}").parent for name in ("_native", "_native_fast", "_native_message")})
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:  # of a .tar Spark refuses links to outside
        for path in made.iterdir():  # Spark wants no entry "."
            tar.add(path, path.name)
        for name in ("shmbroker", "pyarrow", "_cffi_backend", "posix_ipc", "psutil"):
            file = _file_of(name)
            path = file.parent if file.name == "__init__.py" else file
            tar.add(path, f"{packages}/{path.name}", filter=_shipped)
        for native in natives:
            for file in native.glob("*.so"):
                tar.add(file, f"{packages}/shmbroker/{file.name}")
    return archive


def _file_of(module: str) -> Path:
    found = find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    return Path(found.origin)


def _shipped(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name.startswith(_NOT_SHIPPED) else member


def until_true(what: Callable[[], object]) -> None:
    """Wait for something that will be; the watchdog ends the test if it is not."""
    while not what():
        time.sleep(0.05)


def _works(command: Sequence[str]) -> bool:
    tools = shutil.which("unshare") and shutil.which("nsenter")
    return bool(tools) and subprocess.run(command, check=False, capture_output=True).returncode == 0


def _host_of(pid: int) -> str:
    command = ["nsenter", "--target", str(pid), "--uts", "hostname"]
    return subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip()


def _started(command: Sequence[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as into:
        return subprocess.Popen(command, env=environment, stdout=into, stderr=subprocess.STDOUT)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
