# SPDX-License-Identifier: Apache-2.0
"""Commands about the store of a broker: `shmbroker backup`, `restore` and `compact`."""

from pathlib import Path
from typing import Annotated

import typer

from shmbroker import stores
from shmbroker_cli.managing import messages
from shmbroker_cli.options import BrokerOption, DataDirOption, JsonOption
from shmbroker_cli.output import byte_count, printable, report
from shmbroker_cli.progress import steps

DataDirArgument = Annotated[Path, typer.Argument(metavar="DATA_DIR", show_default=False, help="Folder of the store.")]


def _queues(count: int) -> str:
    return f"{count} {'queue' if count == 1 else 'queues'}"


def _facts(path: Path, found: stores.Backup) -> dict[str, object]:
    return {
        "backup": str(path),
        "broker": found.broker,
        "created_at": found.created_at,
        "bytes": found.size,
        "queues": found.queues,
        "messages": found.messages,
    }


def _has(found: stores.Backup) -> str:
    return f"{_queues(found.queues)}, {messages(found.messages)}, {byte_count(found.size)}"


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="BACKUP", show_default=False, help="Folder of the backup: a new or an empty one.")
    ],
    *,
    data_dir: DataDirOption = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=0, help="Seconds to wait until the broker has written what came before.")
    ] = 60.0,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy the store of a broker into a folder, while the broker works.

    The backup has everything that was confirmed before the command began. A broker can begin from it.
    """
    given = {"broker": broker} if data_dir is None else {"data_dir": str(data_dir)}
    with steps() as progress:
        found = stores.backup(target, **given, timeout=timeout, progress=progress)
    report(_facts(target, found), f"{printable(str(target))}: {_has(found)}", as_json=as_json)


def restore(
    backup_: Annotated[Path, typer.Argument(metavar="BACKUP", show_default=False, help="Folder of the backup.")],
    data_dir: DataDirArgument,
    *,
    as_json: JsonOption = False,
) -> None:
    """Make the store of a broker, of any name, from a backup. A folder that has a store is refused."""
    with steps() as progress:
        found = stores.restore(backup_, data_dir, progress=progress)
    facts = {**_facts(backup_, found), "data_dir": str(data_dir)}
    report(facts, f"{printable(str(data_dir))}: {_has(found)}", as_json=as_json)


def compact(data_dir: DataDirArgument, *, as_json: JsonOption = False) -> None:
    """Give the free space in a store back to the file system. No broker may use the store meanwhile."""
    with steps() as progress:
        found = stores.compact(data_dir, progress=progress)
    facts = {"data_dir": str(data_dir), "before": found.before, "after": found.after}
    line = f"{printable(str(data_dir))}: {byte_count(found.before)} before, {byte_count(found.after)} after"
    report(facts, line, as_json=as_json)
