# SPDX-License-Identifier: Apache-2.0
"""Worker processes that always end.

Every worker is spawned (never forked), reports over a pipe of its own, and has
two guards: the parent kills it when its time is up, and a watchdog inside it,
which needs neither the interpreter lock nor the parent, prints where every
thread stands and ends the process.

`run_together` runs some workers once, with an agreed start. `Standing` keeps one
worker alive between runs, for measurements whose preparation is dear.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.context import SpawnProcess
    from types import TracebackType

START_DELAY_NS = 20_000_000
GRACE_SECONDS = 5.0


class WorkerError(RuntimeError):
    """A worker process failed, died or took too long."""


@dataclass(frozen=True)
class Job:
    """One worker process to be.

    Attributes:
        name: Shown in error messages.
        function: Called in the worker as `function(control, *arguments)`, or, in a
            standing worker, as `function(*arguments)`; must be importable by name.
        arguments: Pickled to the worker.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Control:
    """A worker's line to its parent."""

    def __init__(self, pipe: Connection) -> None:
        """Speak over `pipe`."""
        self._pipe = pipe

    def ready(self) -> int:
        """Report that everything is open, and wait for the agreed start.

        Returns:
            The start on the system-wide monotonic clock, in nanoseconds.
        """
        self._pipe.send(("ready", None))
        start_ns = int(self._pipe.recv())
        time.sleep(max(0, start_ns - time.perf_counter_ns()) / 1e9)
        return start_ns

    def finish(self, result: object = None) -> None:
        """Hand in the result, then hold everything open until all have done so.

        Args:
            result: Any picklable value.
        """
        self._pipe.send(("result", result))
        self._pipe.recv()


def _guard(pipe: Connection, seconds: float, body: Callable[[], None]) -> None:
    """Run `body` in a worker under the watchdog, reporting its error."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        body()
    except (EOFError, BrokenPipeError):
        pass  # the parent is gone or has given up: there is nobody to tell
    except BaseException:  # noqa: BLE001 (whatever it was, the parent must know)
        with contextlib.suppress(OSError):
            pipe.send(("error", traceback.format_exc()))
    finally:
        faulthandler.cancel_dump_traceback_later()
        pipe.close()


def _run_job(pipe: Connection, seconds: float, job: Job) -> None:
    """Entry point of a worker of `run_together`."""
    _guard(pipe, seconds, lambda: job.function(Control(pipe), *job.arguments))


def _run_standing(pipe: Connection, seconds: float, job: Job) -> None:
    """Entry point of a standing worker: one step of its generator per request."""

    def steps() -> None:
        generator = job.function(*job.arguments)
        with contextlib.closing(generator):
            pipe.send(("result", next(generator)))
            while True:
                faulthandler.cancel_dump_traceback_later()
                if pipe.recv() != "step":
                    break
                faulthandler.dump_traceback_later(seconds, exit=True)
                pipe.send(("result", next(generator)))
            faulthandler.dump_traceback_later(seconds, exit=True)

    _guard(pipe, seconds, steps)


class _Worker:
    """A started worker process and the parent's end of its pipe."""

    def __init__(self, entry: Callable[..., None], job: Job, seconds: float) -> None:
        """Spawn the process."""
        context = multiprocessing.get_context("spawn")
        self.name = job.name
        self.pipe, child = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=entry, args=(child, seconds, job), name=job.name, daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            child.close()

    def receive(self, kind: str) -> Any:  # noqa: ANN401 (whatever the worker sent)
        """Return the next report, which must be of this kind."""
        try:
            got, value = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join(GRACE_SECONDS)
            code = self.process.exitcode
            message = f"{self.name}: the worker died (exit code {code})"
            raise WorkerError(message) from error
        if got != kind:
            message = f"{self.name}: {value if got == 'error' else got}"
            raise WorkerError(message)
        return value

    def send(self, value: object) -> None:
        """Send something to the worker."""
        try:
            self.pipe.send(value)
        except OSError as error:
            message = f"{self.name}: the worker is gone"
            raise WorkerError(message) from error

    def end(self) -> None:
        """Let the process end by itself for a while, then kill it."""
        self.pipe.close()
        self.process.join(GRACE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(GRACE_SECONDS)

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.end()


def _gather(workers: Sequence[_Worker], kind: str, deadline: float) -> list[Any]:
    """Return one report of this kind from each worker, in the workers' order."""
    missing = {worker.pipe: worker for worker in workers}
    reports: dict[Connection, Any] = {}
    while missing:
        arrived = wait(list(missing), max(0.0, deadline - time.monotonic()))
        if not arrived:
            names = ", ".join(worker.name for worker in missing.values())
            message = f"time is up, still waiting for: {names}"
            raise WorkerError(message)
        for pipe in arrived:
            worker = missing.pop(pipe)  # type: ignore[call-overload]
            reports[worker.pipe] = worker.receive(kind)
    return [reports[worker.pipe] for worker in workers]


def run_together(jobs: Sequence[Job], *, timeout: float) -> list[Any]:
    """Run some workers at once, from an agreed start until all have finished.

    Args:
        jobs: One worker process each.
        timeout: Seconds for everything, process starts included.

    Returns:
        What each job passed to `Control.finish`, in the order of `jobs`.

    Raises:
        WorkerError: If a worker raised, died or was not done in time.
    """
    deadline = time.monotonic() + timeout
    workers: list[_Worker] = []
    try:
        for job in jobs:
            workers.append(_Worker(_run_job, job, timeout + GRACE_SECONDS))  # noqa: PERF401 (those started must be ended if one fails)
        _gather(workers, "ready", deadline)
        start_ns = time.perf_counter_ns() + START_DELAY_NS
        for worker in workers:
            worker.send(start_ns)
        results = _gather(workers, "result", deadline)
        for worker in workers:
            worker.send("over")
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    for worker in workers:
        worker.end()
    return results


class Standing:
    """A worker process that lives through a measurement and makes a step per run."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Generator[Any, None, None]],
        *arguments: object,
        timeout: float,
    ) -> None:
        """Start the worker and wait until it is prepared.

        Args:
            name: Shown in error messages.
            function: A generator function, importable by name: it yields once when
                prepared and once per step, and cleans up when closed.
            arguments: Pickled to the worker.
            timeout: Seconds for the preparation, and for each step.

        Raises:
            WorkerError: If the preparation failed or took too long.
        """
        self._timeout = timeout
        job = Job(name, function, arguments)
        self._worker = _Worker(_run_standing, job, timeout + GRACE_SECONDS)
        self.prepared = self._report()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._worker.process.pid or 0

    def step(self) -> Any:  # noqa: ANN401 (whatever the generator yields)
        """Let the worker make one step.

        Returns:
            What its generator yielded.

        Raises:
            WorkerError: If the step failed or took too long.
        """
        self._worker.send("step")
        return self._report()

    def _report(self) -> Any:  # noqa: ANN401
        deadline = time.monotonic() + self._timeout
        try:
            return _gather([self._worker], "result", deadline)[0]
        except BaseException:
            self._worker.kill()
            raise

    def close(self) -> None:
        """Let the worker clean up and end; harmless when it has ended."""
        with contextlib.suppress(WorkerError, OSError):
            self._worker.send("close")
        self._worker.end()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
