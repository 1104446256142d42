# SPDX-License-Identifier: Apache-2.0
"""Which brokers have their store in a folder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import segments
from shmbroker._core.attachment import attached_to

if TYPE_CHECKING:
    from collections.abc import Iterator


def brokers_of(folder: Path, *, stopped: bool = True) -> Iterator[str]:
    """Yields the names of the brokers that exist and have their store in a folder, as far as this user may attach.

    Args:
        folder: an absolute path without links.
        stopped: whether brokers that were stopped count.
    """
    for name in segments.names():
        with (
            contextlib.suppress(exceptions.BrokerError, exceptions.OutOfMemory, OSError),
            attached_to(segments.path_of(name)) as attached,
        ):
            of_folder = attached.data_dir is not None and Path(attached.data_dir) == folder
            if of_folder and (stopped or not attached.facts().stopped):
                yield name


def refuse_a_broker(folder: Path) -> None:
    """Refuses a store that a broker uses, also while its next storekeeper starts and the writer's place is free.

    Raises:
        StoreError: a broker uses it.
    """
    for name in brokers_of(folder, stopped=False):
        raise exceptions.StoreError(text=f"the store in {str(folder)!r} is in use by broker {name!r}")
