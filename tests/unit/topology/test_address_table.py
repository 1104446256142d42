# SPDX-License-Identifier: Apache-2.0
"""The table of address settings: merging, explaining, the settings of new queues, and its records in the journal."""

from __future__ import annotations

import pytest

from shmbroker._topology import changes, records
from shmbroker._topology.address_rows import ADDRESS_ROWS
from shmbroker._topology.address_table import AddressTable, Explained
from shmbroker._topology.state import Topology
from shmbroker.exceptions import CorruptSegment, NotFound
from shmbroker.settings import ROWS, QueueSettings


def table_of(**entries: dict[str, object]) -> AddressTable:
    """Return a table; the names of the matches have underscores for dots, and `any` for `#`."""
    table = AddressTable()
    for name, settings in entries.items():
        table.put(name.replace("_", ".").replace("any", "#"), settings)
    return table


def changed(topology: Topology, record: bytes) -> Topology:
    """Replay a record, and return the topology."""
    topology.replay(record)
    return topology


def test_rows_follow_from_queue_settings() -> None:
    """There is a default for each queue setting that a default can exist for, with its kind, and its own default."""
    of_queues = {row.queue_setting: row for row in ADDRESS_ROWS.values() if row.queue_setting is not None}
    assert of_queues.keys() == ROWS.keys() - {"exclusive"}
    for name, row in of_queues.items():
        assert (row.kind, row.help, row.default) == (ROWS[name].kind, ROWS[name].help, getattr(QueueSettings(), name))
        assert f"default_{name}" in ADDRESS_ROWS


def test_what_is_live() -> None:
    """What `configure` can change is live, except what is copied: ring size, overflow, consumers, expired ones."""
    live = {row.queue_setting for row in ADDRESS_ROWS.values() if row.is_live}
    of_consumers = {"max_consumers", "consumers_before_dispatch", "delay_before_dispatch"}
    copied = {"ring_size", "overflow", "drop_expired"} | of_consumers
    assert live - {None} == {name for name, row in ROWS.items() if not row.fixed} - copied


def test_each_setting_comes_from_the_most_specific_match_that_gives_it() -> None:
    """Settings are merged one by one: another match may give the next setting."""
    table = table_of(
        any={"default_ring_size": 1, "default_max_length": 2, "default_overflow": "drop"},
        a_any={"default_ring_size": 10, "default_max_length": 20},
        a_b={"default_ring_size": 100},
    )
    found = table.explain("a.b")
    assert found["default_ring_size"] == Explained(100, "a.b")
    assert found["default_max_length"] == Explained(20, "a.#")
    assert found["default_overflow"] == Explained("drop", "#")
    assert found["default_expires"] == Explained(None, None)
    assert list(found) == list(ADDRESS_ROWS)
    assert table.explain("b")["default_ring_size"] == Explained(1, "#")


def test_none_stops_the_search() -> None:
    """A match that gives None decides, so a less specific match does not."""
    table = table_of(any={"default_dead_letter_exchange": "dlx"}, a={"default_dead_letter_exchange": None})
    assert table.explain("a")["default_dead_letter_exchange"] == Explained(None, "a")
    assert table.for_new_queue("a", {}, {}).dead_letter_exchange is None
    assert table.for_new_queue("b", {}, {}).dead_letter_exchange == "dlx"


def test_a_merge_changes_no_entry() -> None:
    """What a match gives stays as it was, however often it is looked up (ARTEMIS-4537)."""
    table = table_of(any={"default_ring_size": 1}, a={"default_max_length": 2})
    for _ in range(2):
        assert table.for_new_queue("a", {}, {}) == QueueSettings(ring_size=1, max_length=2)
    assert dict(table.entries["a"]) == {"default_max_length": 2}
    with pytest.raises(TypeError, match="does not support item assignment"):
        table.entries["a"]["default_ring_size"] = 5  # type: ignore[index]


def test_what_was_given_precedes() -> None:
    """A new queue has what was given, then what its address has, then the caller's defaults, then those of the rows."""
    table = table_of(any={"default_ring_size": 5, "default_max_length": 6})
    otherwise = {"overflow": "drop-head", "max_length": 9}
    made = table.for_new_queue("q", {"ring_size": -1}, otherwise)
    assert (made.ring_size, made.max_length, made.overflow, made.max_bytes) == (-1, 6, "drop-head", -1)


@pytest.mark.parametrize("given", [{}, {"max_length": 3}])
def test_a_dead_letter_queue_is_not_its_own(given: dict[str, object]) -> None:
    """A dead-letter queue that the same match covers has no dead-letter queue; the others have."""
    table = table_of(any={"default_dead_letter_exchange": "", "default_dead_letter_routing_key": "dead"})
    made = table.for_new_queue("dead", given, {})
    assert (made.dead_letter_exchange, made.dead_letter_routing_key) == (None, None)
    made = table.for_new_queue("jobs", given, {})
    assert (made.dead_letter_exchange, made.dead_letter_routing_key) == ("", "dead")


def test_a_default_key_without_an_exchange_does_not_apply() -> None:
    """A dead-letter routing key means nothing alone, so it makes no declaration fail."""
    table = table_of(any={"default_dead_letter_routing_key": "dead"})
    assert table.for_new_queue("q", {}, {}) == QueueSettings()
    made = table.for_new_queue("q", {"dead_letter_exchange": "dlx"}, {})
    assert (made.dead_letter_exchange, made.dead_letter_routing_key) == ("dlx", "dead")


def test_given_settings_that_do_not_go_together_are_refused() -> None:
    """A default does not excuse what the declaration itself gives."""
    table = table_of(any={"default_ring_size": 5})
    with pytest.raises(ValueError, match="it needs a dead_letter_exchange"):
        table.for_new_queue("q", {"dead_letter_routing_key": "k"}, {})


def test_whether_any_match_creates_queues() -> None:
    """The answer changes with each entry, so a publish need not look at the matches."""
    table = table_of(a={"auto_create_queues": True}, b={"auto_create_queues": False})
    assert table.creates_queues
    table.drop("a")
    assert not table.creates_queues


# ---- in the journal ----


def test_a_change_is_replayed_with_exact_values() -> None:
    """Each kind of value is the same, and of the same type, after the journal; also None."""
    given = {name: row.kind.check(name, row.default) for name, row in ADDRESS_ROWS.items()}
    given |= {
        "default_message_ttl": 0.001,
        "default_ring_size": (1 << 56) - 1,
        "default_dead_letter_exchange": "\u00e9",
    }
    topology = changed(Topology(), changes.set_address(Topology(), "a.#", given))
    found = topology.addresses.entries["a.#"]
    assert dict(found) == given
    assert [type(found[name]) for name in given] == [type(value) for value in given.values()]


def test_t69_a_partial_update_changes_only_given_settings() -> None:
    """What a match gave before stays; the other matches are not touched."""
    topology = changed(Topology(), changes.set_address(Topology(), "a", {"default_ring_size": 5}))
    changed(topology, changes.set_address(topology, "b", {"default_ring_size": 6}))
    changed(topology, changes.set_address(topology, "a", {"default_max_length": 7}))
    assert {match: dict(entry) for match, entry in topology.addresses.entries.items()} == {
        "a": {"default_ring_size": 5, "default_max_length": 7},
        "b": {"default_ring_size": 6},
    }


def test_what_is_so_already_needs_no_record() -> None:
    """Setting the same values again appends nothing."""
    topology = changed(Topology(), changes.set_address(Topology(), "a", {"default_ring_size": 5}))
    assert changes.set_address(topology, "a", {"default_ring_size": 5}) == b""


def test_settings_are_removed_one_by_one_or_all() -> None:
    """With names, the other settings of the match stay; with the last one, or without names, the match goes."""
    topology = Topology()
    changed(topology, changes.set_address(topology, "a", {"default_ring_size": 5, "default_max_length": 6}))
    changed(topology, changes.remove_address(topology, "a", ("default_ring_size",)))
    assert dict(topology.addresses.entries["a"]) == {"default_max_length": 6}
    changed(topology, changes.remove_address(topology, "a", ("default_max_length",)))
    assert dict(topology.addresses.entries) == {}
    changed(topology, changes.set_address(topology, "a", {"default_ring_size": 5}))
    changed(topology, changes.remove_address(topology, "a", ()))
    assert dict(topology.addresses.entries) == {}


def test_what_is_not_there_cannot_be_removed() -> None:
    """The error names the match; or the setting, and those that the match gives."""
    topology = changed(Topology(), changes.set_address(Topology(), "a", {"default_ring_size": 5}))
    with pytest.raises(NotFound, match="NOT_FOUND - no address settings for match 'b'"):
        changes.remove_address(topology, "b", ())
    with pytest.raises(NotFound, match="match 'a' gives no default_expires; it gives default_ring_size"):
        changes.remove_address(topology, "a", ("default_expires",))


def test_a_snapshot_has_the_settings_and_their_size_is_tracked() -> None:
    """An empty topology gets the same table from a snapshot; changes and removals leave no bytes behind."""
    topology = Topology()
    changed(topology, changes.set_address(topology, "a.*", {"default_ring_size": 5}))
    changed(topology, changes.set_address(topology, "a.*", {"default_max_length": 7, "default_ring_size": 8}))
    changed(topology, changes.set_address(topology, "#", {"auto_create_queues": True}))
    again = changed(Topology(), topology.snapshot())
    assert again.addresses.entries == topology.addresses.entries
    assert topology._size == again._size == len(topology.snapshot())  # noqa: SLF001 - what compaction goes by
    changed(topology, changes.remove_address(topology, "a.*", ()))
    changed(topology, changes.remove_address(topology, "#", ()))
    assert (topology.snapshot(), topology._size) == (b"", 0)  # noqa: SLF001


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (records.AddressSet("a", {"ring_size": 5}), "no address setting 'ring_size'"),
        (records.AddressSet("a", {"default_ring_size": 0}), "default_ring_size=0"),
        (records.AddressSet("a.#.b", {"default_ring_size": 5}), "'#' is allowed as the last word only"),
    ],
)
def test_a_record_with_other_settings_is_damage(change: records.AddressSet, text: str) -> None:
    """A record that no process of this version writes is reported, not applied."""
    with pytest.raises(CorruptSegment, match="the topology's journal is damaged") as damage:
        changed(Topology(), records.encode(change))
    assert text in damage.value.text


def test_a_look_beside_a_change_sees_the_table_before_or_after_it() -> None:
    """A match that another thread removes during a look is seen as it was when the look began."""

    class Removing(str):
        """A match that is removed when it is compared with an address."""

        __slots__ = ()

        def split(self, *given: object) -> list[str]:  # type: ignore[override]
            table.drop("b")
            return str(self).split(*given)  # type: ignore[arg-type]

    table = AddressTable()
    table.put(Removing("#"), {"default_ring_size": 1})
    table.put("b", {"default_ring_size": 2})
    assert table.given("b")["default_ring_size"] == Explained(2, "b")
    assert table.given("b")["default_ring_size"] == Explained(1, "#")
