# SPDX-License-Identifier: Apache-2.0
"""What every peer offers to the harness."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import platform
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from benchmarks.streams import ping_pong, run_stream

if TYPE_CHECKING:
    from types import ModuleType

    from benchmarks.links import Link
    from benchmarks.samples import Sample
    from benchmarks.streams import Stream


def module(name: str) -> ModuleType:
    """Import an optional package.

    Args:
        name: The module's name.

    Raises:
        ImportError: If it is not installed.
    """
    return importlib.import_module(name)


class Peer(ABC):
    """One way to move messages, set up as well as its own documentation allows.

    Attributes:
        name: Shown in tables and accepted by `--only`.
        short: Heads a narrow column.
        distribution: Name of the package that provides it; empty for the standard
            library.
        module_name: The module that must be importable.
        largest: Largest body in bytes, or None.
        waiting: Whether a waiting receiver sleeps in the kernel or spins.
        shares: Whether several producers, or consumers that compete, may use a link.
    """

    name: ClassVar[str]
    short: ClassVar[str]
    distribution: ClassVar[str] = ""
    module_name: ClassVar[str] = "multiprocessing"
    largest: ClassVar[int | None] = None
    waiting: ClassVar[Literal["sleeping", "spinning"]] = "sleeping"
    shares: ClassVar[bool] = False

    def version(self) -> str:
        """Return the installed version, or an empty string."""
        if not self.distribution:
            return f"Python {platform.python_version()}"
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def available(self) -> str | None:
        """Return the reason why this peer cannot run here, or None if it can."""
        try:
            module(self.module_name)
        except ImportError as error:
            return f"not installed ({error})"
        return None

    @abstractmethod
    def link(self, size: int, consumers: int = 1) -> Link:
        """Make a link for bodies of at most `size` bytes.

        Args:
            size: In bytes.
            consumers: How many processes receive; only a peer that shares has several.
        """

    def stream(self, stream: Stream) -> Sample:
        """Run a stream once, over a link of its own.

        Args:
            stream: Its shape; several producers or consumers only if the peer shares.
        """
        with contextlib.closing(self.link(stream.size, stream.consumers)) as link:
            return run_stream(link, stream)

    def ping_pong(
        self, count: int, *, size: int = 64, pause: float = 0.0, timeout: float = 60.0
    ) -> tuple[list[int], int]:
        """Measure round trips between two processes.

        Args:
            count: Number of round trips.
            size: Length of each body in bytes.
            pause: Seconds to wait before each trip.
            timeout: Seconds after which it is given up.

        Returns:
            The nanoseconds of each trip, and how many answers were wrong.
        """
        with (
            contextlib.closing(self.link(size)) as there,
            contextlib.closing(self.link(size)) as back,
        ):
            return ping_pong(there, back, size=size, count=count, pause=pause, timeout=timeout)
