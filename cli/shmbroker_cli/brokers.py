# SPDX-License-Identifier: Apache-2.0
"""Commands about brokers as a whole: serve, list, status, configure, stop."""

import dataclasses
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker.exceptions import BrokerError, BrokerNotFound, OutOfMemory
from shmbroker_cli import queue_memory
from shmbroker_cli.errors import Refused
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import (
    Column,
    byte_count,
    print_facts,
    print_json,
    print_table,
    printable,
    say,
)
from shmbroker_cli.processes import ProcessFacts, ProcessSums, look_at, process_of, sums

DEFAULT_MEMORY = "1G"


@dataclasses.dataclass(frozen=True)
class _Listed:
    """A row of the list: a broker's statistics, or the reason why they cannot be read."""

    name: str
    statistics: shmbroker.BrokerStatistics | None
    problem: str | None

    def facts(self) -> dict[str, object]:
        """Return the row as a dictionary, for JSON."""
        if self.statistics is None:
            return {"name": self.name, "problem": self.problem}
        return dataclasses.asdict(self.statistics)


HighWatermark = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Publishers wait while this share of the memory is in use; 0: no such share."),
]
Warning_ = Annotated[
    float | None, typer.Option(metavar="SHARE", help="The status warns from this share of the memory on; 0: never.")
]


def serve(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the broker.")],
    *,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory limit of a new broker, such as 512M; 1G if not given.")
    ] = None,
    memory_high_watermark: HighWatermark = None,
    memory_warning: Warning_ = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the store that keeps durable queues; it must exist."),
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="What publishers to durable queues of a new broker wait for: always (the sync of their message), "
            "interval (nothing: it is synced within half a second) or none (nothing, and it is not synced).",
        ),
    ] = None,
    store_full: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="What publishers to durable queues of a new broker do while the disk is full: block (wait for room) "
            "or refuse (raise an error).",
        ),
    ] = None,
) -> None:
    """Run the housekeeper of a broker in the foreground, until SIGTERM, Ctrl-C or `shmbroker stop`.

    Makes the broker if it does not exist. Its memory outlives this command: messages
    stay until `shmbroker stop --purge`.
    """
    given: dict[str, Any] = {"data_dir": str(data_dir) if data_dir else None, "sync": sync, "store_full": store_full}
    marks = {"memory_high_watermark": memory_high_watermark, "memory_warning": memory_warning}
    given |= {name: mark for name, mark in marks.items() if mark}
    if memory is not None:
        given["memory"] = memory
    elif shmbroker.Broker(name).name not in shmbroker.brokers():
        given["memory"] = DEFAULT_MEMORY
    broker = shmbroker.Broker(name, **given)
    broker.serve_forever(on_ready=lambda: say(f"{broker.name}: serving"))


def list_brokers(*, as_json: JsonOption = False) -> None:
    """List the brokers of this user."""
    listed = [one for name in sorted(shmbroker.brokers()) if (one := _look(name)) is not None]
    if as_json:
        print_json([one.facts() for one in listed])
        return
    columns: list[Column[_Listed]] = [
        Column("broker", lambda one: one.name),
        Column("memory", lambda one: _memory(one.statistics)),
        Column("queues", lambda one: one.statistics.queue_count if one.statistics else None),
        Column(
            "connections",
            lambda one: one.statistics.connection_count if one.statistics else None,
        ),
        Column("processes", lambda one: one.statistics.process_count if one.statistics else None),
        Column(
            "housekeeper",
            lambda one: _housekeeper(one.statistics) if one.statistics else "none",
        ),
    ]
    if any(one.problem for one in listed):
        columns.append(Column("problem", lambda one: one.problem or ""))
    print_table(listed, columns, empty="no brokers")


def _look(name: str) -> _Listed | None:
    """Return the row of a broker; None if the broker is gone."""
    try:
        return _Listed(name, shmbroker.Broker(name).statistics(), None)
    except BrokerNotFound:
        return None
    except (BrokerError, OutOfMemory, OSError) as error:  # OutOfMemory: this process cannot map the broker
        return _Listed(name, None, str(error))


def _memory(statistics: shmbroker.BrokerStatistics | None) -> str:
    if statistics is None:
        return "-"
    used, limit = statistics.memory_used, statistics.memory_limit
    return f"{byte_count(used)} of {byte_count(limit)}"


def _share(mark: float | None) -> str:
    return "none" if mark is None else f"{mark:.1%}"


def _housekeeper(statistics: shmbroker.BrokerStatistics) -> str:
    if statistics.housekeeper_pid == 0:
        return "none"
    return f"{statistics.housekeeper_pid}{' (stopped)' if statistics.housekeeper_stopped else ''}"


def _processor_time(used: ProcessFacts | ProcessSums | None) -> str | None:
    return f"{used.cpu_seconds:,.1f} s" if used else None


def _resident(used: ProcessFacts | ProcessSums | None) -> str | None:
    return f"{byte_count(used.memory)}, {byte_count(used.memory_shared)} of it shared" if used else None


def _client_count(clients: ProcessSums) -> str:
    count = f"{clients.processes:,}"
    return count if clients.known == clients.processes else f"{count}, {clients.known:,} of them visible"


def status(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Show what a broker holds, its housekeeper, and what its processes use."""
    found = shmbroker.Broker(broker)
    statistics, connections = found.statistics(), found.connections()
    processes = {process_of(one) for one in connections}
    facts = look_at(processes)
    keepers = {one for one in processes if one.pid == statistics.housekeeper_pid}
    # Processes in different pid namespaces may have the same pid: then it is unknown which is the housekeeper.
    keeper = facts.get(next(iter(keepers))) if len(keepers) == 1 else None
    clients = sums(processes - keepers, facts)
    memory = None if statistics.store is None else queue_memory.sums(found.name)
    if as_json:
        told = {**dataclasses.asdict(statistics), "housekeeper": keeper, "clients": clients}
        print_json(told if statistics.store is None else {**told, "memory_of_queues": memory})
        return
    created = datetime.fromtimestamp(statistics.created_at, UTC).astimezone()
    print_facts(
        {
            "broker": statistics.name,
            "created": created.isoformat(" ", "seconds"),
            "memory": _memory(statistics),
            "memory state": statistics.memory_state,
            "high watermark": _share(statistics.memory_high_watermark),
            "memory warning": _share(statistics.memory_warning),
            "kept for structures": byte_count(statistics.memory_structures),
            "kept for bodies": byte_count(statistics.memory_bodies),
            "segments": statistics.segments,
            "queues": statistics.queue_count,
            "connections": statistics.connection_count,
            "processes": statistics.process_count,
            "housekeeper": _housekeeper(statistics),
            "housekeeper processor": _processor_time(keeper),
            "housekeeper memory": _resident(keeper),
            "clients": _client_count(clients),
            "clients processor": _processor_time(clients if clients.known else None),
            "clients memory": _resident(clients if clients.known else None),
            "rescues": statistics.rescues,
            "rescues of stopped": statistics.stopped_rescues,
            "repairs": str(statistics.repairs),
            "explained repairs": str(statistics.explained_repairs),
            "reaped": statistics.reaped,
            "stalled consumers": statistics.stalled,
            **({} if statistics.store is None else _store(statistics.store)),
            **({} if memory is None else queue_memory.shown_sums(memory)),
        }
    )


def _store(store: shmbroker.StoreStatistics) -> dict[str, str | float | bool | None]:
    return {
        "store": f"{store.data_dir}, {store.state}",
        "storekeeper": str(store.storekeeper_pid or "none"),
        "disk": "full" if store.is_full else "has room",
        "while it is full": store.store_full,
        "publishers wait": store.sync,
        "turns": store.turns,
        "sync": f"{store.sync_seconds * 1000:.2f} ms, {store.messages_per_turn} messages",
        "leaves that left": store.left,
        "leaves that came back": store.came_back,
    }


def configure(
    *,
    memory_high_watermark: HighWatermark = None,
    memory_warning: Warning_ = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change the marks of a broker's memory, while it is in use; a mark that is not given stays."""
    found = shmbroker.Broker(broker)
    given = {"memory_high_watermark": memory_high_watermark, "memory_warning": memory_warning}
    found.configure(**{name: mark or None for name, mark in given.items() if mark is not None})
    now = found.statistics()
    high, warning = now.memory_high_watermark, now.memory_warning
    if as_json:
        print_json({"broker": found.name, "memory_high_watermark": high, "memory_warning": warning})
        return
    say(f"{broker}: high watermark {_share(high)}, warning {_share(warning)}")


def stop(
    *,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Disconnect all clients, and remove the memory with all messages."),
    ] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Stop a broker's housekeeper; its clients and messages stay, unless --purge is given."""
    found = shmbroker.Broker(broker)
    if found.name not in shmbroker.brokers():
        message = f"no broker '{broker}'"
        raise Refused(message)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", shmbroker.StoreLost)
        found.stop(purge=purge)
    for one in told:
        typer.echo(printable(str(one.message)), err=True)
    if as_json:
        print_json({"broker": found.name, "purged": purge})
        return
    say(f"{broker}: {'purged' if purge else 'stopped'}")
