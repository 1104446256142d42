# SPDX-License-Identifier: Apache-2.0
"""The doctor: memory is damaged by hand, each time in another way, and it has to say what is wrong."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.memory import Memory
from scenario_support.observing import numbered, put_each
from scenario_support.processes import Actor, run_python
from scenario_support.waiting import becomes, eventually
from typer.testing import CliRunner

import shmbroker
import shmbroker.testing
from shmbroker_cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE = (1 << 28) - 1
NOBODY = 4000
MESSAGES = 100
LARGE = 5 << 20
SUPPORT = str(Path(__file__).parents[1] / "scenarios")


class Patient:
    """A broker at rest, with something of everything in it, and its memory.

    `jobs` has more messages than a page holds, one of them scheduled, and two are held by a stopped client, which
    also consumes `idle`. `ring` has limits, so it keeps hints. `large` holds bodies of several kinds of slots.
    """

    def __init__(self, broker: shmbroker.Broker, connection: shmbroker.Connection, client: Actor) -> None:
        """Make the queues, and bring everybody to rest."""
        self.broker, self.connection = broker, connection
        jobs, idle = connection.queue("jobs"), connection.queue("idle")
        put_each(jobs, numbered(MESSAGES - 1))
        jobs.put(b"later", delay=3600)
        put_each(connection.queue("ring", ring_size=9), numbered(20))
        large = connection.queue("large")
        for size in (10_000, LARGE, 100):
            large.put(b"x" * size)
        client.do("get", queue="jobs", count=2)
        client.do("consume", queue="idle")
        eventually(lambda: idle.statistics().interested == 1)
        becomes(connection.doctor, [])
        client.stop()
        broker.stop()
        self.memory = Memory(broker.name)
        self.lib = self.memory.lib
        self.client = int(self.lib.sb_cell_owner(self.memory.cell("jobs", 0).word))

    def complaints(self) -> list[str]:
        """Return what the doctor says; it must not change a byte while it looks.

        An IO thread of ours may look for the dead meanwhile; what the doctor changed, it would change each time.
        """
        for _ in range(3):
            before = self.memory.contents()
            said = self.connection.doctor()
            after = self.memory.contents()
            if after == before:
                break
        assert after == before
        return said

    def says(self, *words: str) -> None:
        """See that the doctor says something that has all these words, from Python and on the command line."""
        said = self.complaints()
        assert [line for line in said if all(word in line for word in words)], said
        ran = CliRunner().invoke(app, ["doctor", self.broker.name])
        assert (ran.exit_code, ran.stderr) == (1, "")
        lines = [line.removeprefix(f"{self.broker.name}: ") for line in ran.stdout.splitlines()]
        assert [line for line in lines if all(word in line for word in words)], lines


@pytest.fixture(scope="module")
def healthy() -> Iterator[Patient]:
    """Run a broker with something in it."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(shmbroker.testing.broker(memory="64M"))
        connection = stack.enter_context(broker.connect())
        for name in ("jobs", "idle"):
            connection.queue(name)
        client = stack.enter_context(Actor(broker.name))
        yield Patient(broker, connection, client)


@pytest.fixture
def patient(healthy: Patient) -> Iterator[Patient]:
    """Give the test a healthy broker; what it does to the memory is undone, and it is healthy again."""
    assert healthy.complaints() == []
    with healthy.memory.put_back():
        yield healthy
    assert healthy.complaints() == []


# ---- whatever it finds ----


def test_hints_that_lie_are_no_fault(patient: Patient) -> None:
    """Hints of free slots are never believed: only the slots' headers say what is free."""
    memory = patient.memory
    meta = memory.meta(memory.chunk_of(memory.body_slot("jobs", 7)))
    for value in (0, (1 << 64) - 1):
        for index in range(len(meta.hints)):
            meta.hints[index] = value
        assert patient.complaints() == []


BATTERED = """
    import random, sys
    sys.path.insert(0, sys.argv[2])
    import shmbroker
    from scenario_support.memory import Memory

    chance = random.Random(sys.argv[3])
    memory = Memory(sys.argv[1])
    words = memory.used_words(b"x")
    found = 0
    with shmbroker.connect(sys.argv[1], create=False) as connection:
        for _ in range(int(sys.argv[4])):
            with memory.words_put_back(chance.sample(words, chance.choice([1, 2, 10]))) as damaged:
                for word in damaged:
                    word[0] = chance.choice([chance.getrandbits(64), word[0] ^ 1 << chance.randrange(64), 0,
                                             (word[0] + 1) % 2**64, chance.choice(damaged)[0]])
                before = [word[0] for word in damaged]
                try:
                    found += bool(connection.doctor())
                except shmbroker.ConnectionClosedByBroker:
                    pass  # "closing" was set
                assert [word[0] for word in damaged] == before
    print("survived, found", found)
"""


@pytest.mark.parametrize("seed", range(3))
def test_it_survives_whatever_is_there(patient: Patient, seed: int) -> None:
    """Words overwritten at random, hundreds of times: no crash, no hang, nothing but findings; nothing is mended."""
    done = run_python(BATTERED, patient.broker.name, SUPPORT, f"{seed}", "200")
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    assert int(done.stdout.removeprefix("survived, found ")) > 60


STARVED = """
    import resource, sys
    import shmbroker
    from pathlib import Path

    with shmbroker.connect(sys.argv[1], create=False) as connection:
        assert connection.doctor() == []
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (256 << 10), -1))
        try:
            print(connection.doctor())
        except shmbroker.BrokerError as error:
            print(error)
"""


def test_without_memory_of_its_own_it_says_so(patient: Patient) -> None:
    """A process that has no memory left for the examination gets an error, not a clean bill of health."""
    done = run_python(STARVED, patient.broker.name)
    assert "was not examined: this process has no memory for that" in done.stdout, done.stdout + done.stderr


def test_the_command_in_a_process_of_its_own(patient: Patient) -> None:
    """One line for each finding, exit code 1, and nothing on standard error; as JSON the same."""
    patient.memory.ledger("jobs").counters[patient.lib.SB_COUNT_ADDED] += 1
    command = [sys.executable, "-m", "shmbroker_cli", "doctor", patient.broker.name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.splitlines() == [f"{patient.broker.name}: {line}" for line in patient.complaints()]
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["problems"] == patient.complaints()


# ---- cells and messages ----


def point(patient: Patient, position: int, slot: int, ref: int = 0) -> None:
    """Let a cell of `jobs` refer to a slot."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, position)
    memory.cell("jobs", position).word = lib.sb_cell_open(lib.SB_CELL_AVAILABLE, slot, ref, gen)


def test_a_slot_outside_the_memory(patient: Patient) -> None:
    """A cell refers to a slot that cannot be."""
    point(patient, 7, OUTSIDE)
    patient.says("queue 'jobs', position 7", f"slot {OUTSIDE}", "outside the memory")


def test_the_slot_that_means_none(patient: Patient) -> None:
    """A cell refers to slot 0."""
    point(patient, 7, 0)
    patient.says("queue 'jobs', position 7", "slot 0,", "outside the memory")


def test_a_slot_of_another_kind(patient: Patient) -> None:
    """A cell refers to a queue."""
    slot = patient.memory.queue_slot("ring")
    point(patient, 70, slot)
    patient.says("queue 'jobs', position 70", f"slot {slot}", "a queue, not a message")


def test_a_place_where_no_slot_begins(patient: Patient) -> None:
    """A cell refers into the middle of a slot."""
    slot = patient.memory.body_slot("large", 0) + 1
    point(patient, 7, slot)
    patient.says("queue 'jobs', position 7", f"slot {slot}", "no slot begins")


def test_a_free_slot(patient: Patient) -> None:
    """The slot of a message was freed behind its back: what is used is said to be free."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_FREE, 0, lib.sb_slot_gen(header[0]) + 1)
    patient.says("queue 'jobs', position 7", f"slot {slot}", "is free")


def test_a_slot_that_is_not_published(patient: Patient) -> None:
    """The slot of a message is somebody's who is about to write it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_ALLOC, patient.client, lib.sb_slot_gen(header[0]))
    patient.says("queue 'jobs', position 7", f"slot {slot}", "not published")
    patient.says(f"slot {slot} (a message)", f"connection {patient.client} owns it", "do not name it")


def test_two_cells_with_one_slot(patient: Patient) -> None:
    """Two cells refer to a message by one reference, and nobody to the other message."""
    shared, lost = patient.memory.body_slot("jobs", 7), patient.memory.body_slot("jobs", 8)
    point(patient, 8, shared)
    patient.says("queue 'jobs', position 8", f"slot {shared}", "as another position does")
    patient.says(f"slot {lost} (a message)", "nothing refers to it")


def test_a_reference_the_slot_does_not_have(patient: Patient) -> None:
    """A cell refers to a slot by a reference that was never given."""
    slot = patient.memory.body_slot("jobs", 7)
    point(patient, 7, slot, 3)
    patient.says("queue 'jobs', position 7", f"slot {slot} by reference 3", "does not have")


def test_a_reference_without_a_holder(patient: Patient) -> None:
    """A slot has one reference more than there are cells: it would never be freed."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 7)
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 0b101, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it", "references 0x5, seen 0x1")


def test_a_leaked_slot(patient: Patient) -> None:
    """A free slot is said to be used: nobody would ever free it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 1, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it")


def test_a_published_slot_without_references(patient: Patient) -> None:
    """A slot that lost its last reference without being freed is leaked as well."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_PUBLISHED, 0, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "nothing refers to it", "references 0x0")


def test_a_slot_header_that_cannot_be(patient: Patient) -> None:
    """A state that no slot is ever in."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    header = memory.headers(slot)
    header[0] = lib.sb_slot_word(lib.SB_SLOT_STAGED, 1, lib.sb_slot_gen(header[0]))
    patient.says(f"slot {slot} (a message)", "impossible state")


def test_a_message_longer_than_its_slot(patient: Patient) -> None:
    """A body whose length would lead beyond its slot."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.slot("message", slot).body_length = 1_000_000
    patient.says("queue 'jobs', position 7", f"slot {slot} says 1000000 bytes", "there is room for")


def test_a_message_that_begins_elsewhere(patient: Patient) -> None:
    """A body that begins within the message's own header."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.slot("message", slot).body_offset = 8
    patient.says("queue 'jobs', position 7", f"slot {slot} says its body begins at 8")


def test_an_impossible_cell(patient: Patient) -> None:
    """A cell in a state that there is not."""
    patient.memory.cell("jobs", 7).word = 0xF
    patient.says("messages of queue 'jobs', position 7: impossible cell 0xf")


def test_a_cell_of_an_earlier_page(patient: Patient) -> None:
    """A cell that carries the generation of a page that was freed long ago."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, 7)
    slot = memory.body_slot("jobs", 7)
    memory.cell("jobs", 7).word = lib.sb_cell_open(lib.SB_CELL_AVAILABLE, slot, 0, gen + 1)
    patient.says("messages of queue 'jobs', position 7: impossible cell", f"generation {gen:#x}")


def test_a_free_cell_between_filled_ones(patient: Patient) -> None:
    """A consumer would stop at it for ever."""
    memory, lib = patient.memory, patient.lib
    gen = memory.leaf_gen(memory.queue("jobs").root, 7)
    memory.cell("jobs", 7).word = lib.sb_cell_bare(lib.SB_CELL_FREE, gen)
    patient.says("messages of queue 'jobs': position 7 is free, although position 8 is filled")


def test_a_message_held_by_nobody(patient: Patient) -> None:
    """A message is held by a connection that there is not: it would never come back."""
    memory, lib = patient.memory, patient.lib
    cell, gen = memory.cell("jobs", 0), memory.leaf_gen(memory.queue("jobs").root, 0)
    cell.word = lib.sb_cell_owned(lib.SB_CELL_ACQUIRED, lib.sb_cell_slot(cell.word), 0, NOBODY, gen)
    patient.says("queue 'jobs', position 0", f"connection {NOBODY}, which does not exist")


def test_a_message_held_in_another_life_of_its_slot(patient: Patient) -> None:
    """The holder's record is of another generation than the slot: an ack would not free it."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    memory.cell("jobs", 0).side += 5
    patient.says("queue 'jobs', position 0", f"generation {gen + 5} of slot {slot}, which is at {gen}")


# ---- rings ----


def test_a_head_beyond_a_ready_message(patient: Patient) -> None:
    """Nobody looks before the head, unless a bit says so: the message is hidden."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.queue("jobs").head = 8
    patient.says("queue 'jobs', position 7", f"slot {slot}", "before the head 8", "no hint leads to it")


def test_a_tail_beyond_the_end(patient: Patient) -> None:
    """What is put behind a free place is never found."""
    patient.memory.queue("jobs").tail = MESSAGES + 5
    patient.says(f"messages of queue 'jobs': the hint of the tail is {MESSAGES + 5}, position {MESSAGES} is free")


def test_a_link_to_a_page_of_another_height(patient: Patient) -> None:
    """The root link says another height than the page has."""
    memory, lib = patient.memory, patient.lib
    queue = memory.queue("jobs")
    slot = lib.sb_link_slot(queue.root)
    queue.root = lib.sb_link_word(2, slot, lib.sb_link_gen(queue.root))
    patient.says("messages of queue 'jobs', from position 0", f"slot {slot}")


def test_a_link_to_a_page_that_is_none(patient: Patient) -> None:
    """A page links a message as its child."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("jobs", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    memory.page(memory.queue("jobs").root).children[1] = lib.sb_link_word(0, slot, gen)
    patient.says("messages of queue 'jobs', from position 64", f"slot {slot}", "a message, not a leaf page")


def test_a_page_that_is_linked_twice(patient: Patient) -> None:
    """A page is its parent's first child and its second: it cannot begin at both positions."""
    memory, lib = patient.memory, patient.lib
    parent = memory.page(memory.queue("jobs").root)
    parent.children[1] = parent.children[0]
    slot = lib.sb_link_slot(parent.children[0])
    patient.says("messages of queue 'jobs', from position 64", f"slot {slot} says it begins at 0")


def test_a_page_of_another_queue(patient: Patient) -> None:
    """A page says that it belongs to another queue."""
    memory = patient.memory
    memory.leaf(memory.queue("jobs").root).page.object = memory.queue_slot("idle")
    patient.says("messages of queue 'jobs', from position 0", "another's")


def test_a_link_to_an_earlier_life_of_a_page(patient: Patient) -> None:
    """A link carries a generation that its page has no longer."""
    memory, lib = patient.memory, patient.lib
    queue = memory.queue("ring")
    slot, gen = lib.sb_link_slot(queue.root), lib.sb_link_gen(queue.root)
    queue.root = lib.sb_link_word(lib.sb_link_height(queue.root), slot, gen + 1)
    patient.says("messages of queue 'ring', from position 0", f"slot {slot}", f"link {gen + 1:#x}, page {gen:#x}")


def test_a_page_nobody_links(patient: Patient) -> None:
    """A child is gone from its parent: the page is leaked, and its messages with it."""
    memory, lib = patient.memory, patient.lib
    parent = memory.page(memory.queue("jobs").root)
    slot = lib.sb_link_slot(parent.children[1])
    parent.children[1] = lib.SB_LINK_DONE
    patient.says(f"slot {slot} (a leaf page)", "nothing refers to it")


# ---- counters, hints, settings ----


def test_a_counter_that_is_off_by_one(patient: Patient) -> None:
    """A message was counted that never came."""
    ready = MESSAGES - 3
    patient.memory.ledger("jobs").counters[patient.lib.SB_COUNT_ADDED] += 1
    patient.says("queue 'jobs'", f"counters say {ready + 1} messages are ready, its cells {ready}")


def test_a_counter_below_nothing(patient: Patient) -> None:
    """More messages went than came: what nobody can see in the statistics, which do not go below zero."""
    patient.memory.ledger("idle").counters[patient.lib.SB_COUNT_ACKED] += 1
    patient.says("queue 'idle'", "counters say -1 messages are ready, its cells 0")


def test_a_counter_of_bytes(patient: Patient) -> None:
    """The bytes of a queue are those of its messages."""
    patient.memory.ledger("large").counters[patient.lib.SB_COUNT_ADDED_BYTES] += 1
    held = 10_000 + LARGE + 100
    patient.says("queue 'large'", f"counters say it holds {held + 1} bytes, its messages {held}")


def test_a_ledger_of_somebody_who_is_not_there(patient: Patient) -> None:
    """A ledger belongs to a connection that does not exist: it would never be used again."""
    patient.memory.ledger("large").owner = NOBODY
    patient.says("queue 'large'", "ledger", f"connection {NOBODY}, which does not exist")


def test_a_chain_of_ledgers_that_bites_its_tail(patient: Patient) -> None:
    """Whoever follows it must not follow it for ever."""
    memory = patient.memory
    memory.ledger("large").next = memory.queue("large").ledgers
    patient.says("queue 'large'", "chain of its ledgers", f"slot {memory.queue('large').ledgers}")


def test_a_chain_of_ledgers_that_leads_elsewhere(patient: Patient) -> None:
    """It ends in a queue."""
    memory = patient.memory
    slot = memory.queue_slot("large")
    memory.ledger("large").next = slot
    patient.says("queue 'large'", "chain of its ledgers", f"slot {slot}", "a queue")


@pytest.mark.parametrize("hint", ["taken", "admitted", "bytes_in"])
def test_a_hint_that_is_off(patient: Patient, hint: str) -> None:
    """Limits believe the hints."""
    queue = patient.memory.queue("ring")
    setattr(queue, hint, getattr(queue, hint) + 2)
    patient.says("queue 'ring': the hint of", "should be")


def test_limits_without_hints(patient: Patient) -> None:
    """A queue that has limits keeps hints."""
    patient.memory.queue("ring").tracking = 0
    patient.says("queue 'ring': has limits, but does not keep the hints")


@pytest.mark.parametrize("setting", ["ring_size", "max_length", "max_bytes"])
def test_a_setting_that_cannot_be(patient: Patient, setting: str) -> None:
    """A limit below nothing."""
    setattr(patient.memory.queue("jobs"), setting, -7)
    patient.says("queue 'jobs'", f"{setting} is -7")


def test_an_overflow_that_is_none(patient: Patient) -> None:
    """A number behind which there is no way to overflow."""
    patient.memory.queue("jobs").overflow = 99
    patient.says("queue 'jobs'", "overflow is number 99")


# ---- directory ----


def test_a_name_that_changed(patient: Patient) -> None:
    """The name of a queue is no longer the one it was filed under."""
    patient.memory.queue("jobs").name[0] = b"J"
    entry = patient.memory.entry("Jobs")
    patient.says(f"directory entry {entry}: queue 'Jobs'", "not found by its name")


def test_a_hash_that_changed(patient: Patient) -> None:
    """The entry of a queue carries another hash: nobody finds the queue any more."""
    entry = patient.memory.entry("jobs")
    patient.memory.directory[entry] ^= 1 << 40
    patient.says(f"directory entry {entry}: queue 'jobs'", "not found by its name")


@pytest.mark.parametrize("length", [0, 2, 300])
def test_a_name_of_another_length(patient: Patient, length: int) -> None:
    """A name has 1 to 255 bytes, and as many as it says."""
    slot, entry = patient.memory.queue_slot("jobs"), patient.memory.entry("jobs")
    patient.memory.queue("jobs").name_length = length
    patient.says(f"directory entry {entry}", f"slot {slot}", f"name of {length} bytes has 4")


def test_an_entry_that_leads_nowhere(patient: Patient) -> None:
    """The entry of a queue leads to a message."""
    memory = patient.memory
    entry, slot = memory.entry("jobs"), memory.body_slot("jobs", 7)
    memory.directory[entry] = memory.directory[entry] & ~(OUTSIDE << 2) | slot << 2
    patient.says(f"directory entry {entry}", f"slot {slot}", "no queue (a message)")


def test_two_entries_for_one_queue(patient: Patient) -> None:
    """A queue has one name."""
    memory = patient.memory
    jobs, large = memory.entry("jobs"), memory.entry("large")
    memory.directory[large] = memory.directory[jobs]
    patient.says(f"directory entry {max(jobs, large)}: leads to queue 'jobs'", "as another entry does")
    patient.says("(a queue)", "nothing refers to it")


def test_a_queue_count_that_is_off(patient: Patient) -> None:
    """The header counts the queues."""
    patient.memory.header.queue_count += 1
    patient.says("header: counts 5 queues, the directory has 4")


# ---- consumers ----


def idle_level(patient: Patient) -> Any:  # noqa: ANN401 (a pointer of cffi)
    """Return the only priority of consumers that `idle` has."""
    return patient.memory.slot("level", patient.memory.queue("idle").levels)


def idle_entry(patient: Patient) -> tuple[Any, int]:
    """Return the cell of the interested list where the consumer of `idle` stands, and the slot of the consumer."""
    memory, lib = patient.memory, patient.lib
    cells = memory.leaf(idle_level(patient).interested.root).cells
    entries = [cell for cell in cells if lib.sb_cell_state(cell.word) == lib.SB_CELL_ENTRY]
    return entries[-1], lib.sb_cell_slot(entries[-1].word)


def test_a_list_entry_of_an_earlier_epoch(patient: Patient) -> None:
    """The entry of an interested consumer is dead: nobody would ever tell the consumer of a message."""
    cell, node = idle_entry(patient)
    cell.word -= 1 << 32
    patient.says(f"queue 'idle', slot {node}", f"connection {patient.client} is interested", "nobody would tell it")


def test_a_list_entry_of_a_later_epoch(patient: Patient) -> None:
    """An entry is ahead of its consumer by more than a move can be."""
    cell, node = idle_entry(patient)
    cell.word += 9 << 32
    patient.says("list of interested consumers of queue 'idle'", f"slot {node} in epoch")


def test_a_list_entry_that_names_no_consumer(patient: Patient) -> None:
    """An entry names a queue."""
    cell, _ = idle_entry(patient)
    slot = patient.memory.queue_slot("idle")
    cell.word = patient.lib.sb_entry_word(slot, 7)
    patient.says("list of interested consumers of queue 'idle'", f"slot {slot}", "no consumer node (a queue)")


def test_a_consumer_in_the_list_of_another_queue(patient: Patient) -> None:
    """A consumer stands in the lists of one queue and says it belongs to another."""
    _, node = idle_entry(patient)
    slot = patient.memory.queue_slot("jobs")
    patient.memory.slot("node", node).queue = slot
    patient.says("list of interested consumers of queue 'idle'", f"slot {node}", f"of slot {slot}")


def test_a_consumer_with_a_word_that_cannot_be(patient: Patient) -> None:
    """A consumer says it belongs to another connection than its slot does."""
    memory, lib = patient.memory, patient.lib
    _, slot = idle_entry(patient)
    node = memory.slot("node", slot)
    node.word = lib.sb_node_word(lib.SB_NODE_INTERESTED, NOBODY, lib.sb_node_epoch(node.word))
    patient.says("queue 'idle'", f"slot {slot}", f"connection {NOBODY}", f"owner {patient.client}")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("interested", "counts 2 interested consumers, the lists hold 1"),
        ("notified", "counts 1 notified consumers, the lists hold 0"),
        ("not_interested", "counts 1 idle consumers, the list holds 0"),
        ("non_acquiring", "counts 1 browsers, the list holds 0"),
        ("consumers", "counts 2 consumers, the list holds 1"),
        ("room_waiting", "counts 1 waiting producers, the list holds 0"),
    ],
)
def test_a_count_of_consumers_that_is_off(patient: Patient, count: str, words: str) -> None:
    """A count that is too low lets a consumer sleep, one that is too high wakes in vain."""
    queue = patient.memory.queue("idle")
    setattr(queue, count, getattr(queue, count) + 1)
    patient.says("queue 'idle'", words)


def test_a_count_of_a_priority_that_is_off(patient: Patient) -> None:
    """A priority that seems to have interested consumers holds all lower ones off."""
    idle_level(patient).interested_count += 1
    patient.says("queue 'idle'", "the priority in slot", "counts 2 interested consumers, its list holds 1")


def test_a_count_of_those_who_wait_for_memory(patient: Patient) -> None:
    """The list of those who wait for memory is the broker's own."""
    patient.memory.header.memory_waiting += 3
    patient.says("header: counts 3 who wait for memory, the list holds 0")


def test_a_chain_of_priorities_that_bites_its_tail(patient: Patient) -> None:
    """Whoever follows it must not follow it for ever."""
    slot = patient.memory.queue("idle").levels
    idle_level(patient).next = slot
    patient.says("queue 'idle'", "chain of its priorities", f"slot {slot}")


def test_a_timer_of_a_message_that_never_was(patient: Patient) -> None:
    """The schedule names a position beyond the end of its queue."""
    memory, lib = patient.memory, patient.lib
    cell = memory.leaf(memory.queue("jobs").schedule.root).cells[0]
    assert cell.word == lib.SB_CELL_ENTRY | (MESSAGES - 1) << 4
    cell.word = lib.SB_CELL_ENTRY | 5_000_000 << 4
    patient.says("queue 'jobs'", "schedule names position 5000000", f"ends at {MESSAGES}")


# ---- connections ----


def test_a_holding_nobody_knows(patient: Patient) -> None:
    """The holdings of a connection name a slot that it does not own."""
    memory, lib = patient.memory, patient.lib
    slot = memory.a_free_slot(memory.body_slot("jobs", 7))
    entry = memory.holdings(patient.client, lib.SB_HOLD_SLOT)[0]
    entry.what = lib.sb_holding_what(lib.SB_HOLD_SLOT, slot, 1)
    patient.says(f"connection {patient.client}", f"holdings name slot {slot} (a message), which it does not own")


def test_a_holding_of_a_message_that_is_not_held(patient: Patient) -> None:
    """The holdings of a connection name a position that it does not hold."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].where = 9
    patient.says(f"connection {patient.client}", "position 9 of queue 'jobs', which it does not hold")


def test_a_message_the_holdings_do_not_name(patient: Patient) -> None:
    """A message that its holder does not know of would stay held when the holder dies."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].what = lib.SB_HOLD_NONE
    patient.says(f"connection {patient.client}", "holdings name 1 of the 2 messages it holds")


def test_a_consumer_the_holdings_do_not_name(patient: Patient) -> None:
    """A slot that its owner does not know of would be lost with its owner."""
    memory, lib = patient.memory, patient.lib
    _, slot = idle_entry(patient)
    entries = memory.holdings(patient.client, lib.SB_HOLD_SLOT)
    next(entry for entry in entries if lib.sb_holding_slot(entry.what) == slot).what = lib.SB_HOLD_NONE
    patient.says(f"slot {slot} (a consumer node): connection {patient.client} owns it", "do not name it")


def test_a_ledger_the_holdings_do_not_name(patient: Patient) -> None:
    """The same for a ledger: the queue could never be freed after its owner's death."""
    memory, lib = patient.memory, patient.lib
    entry = memory.holdings(patient.client, lib.SB_HOLD_LEDGER)[0]
    slot = entry.where
    entry.what = lib.SB_HOLD_NONE
    patient.says(f"the ledger in slot {slot} belongs to connection {patient.client}", "do not name it")


def test_a_view_that_is_none(patient: Patient) -> None:
    """The holdings of a connection say it reads a body that it has no reference to."""
    memory, lib = patient.memory, patient.lib
    slot = memory.body_slot("large", 0)
    gen = lib.sb_slot_gen(memory.headers(slot)[0])
    entry = memory.holdings(patient.client, lib.SB_HOLD_CELL)[0]
    entry.what, entry.where = lib.sb_holding_what(lib.SB_HOLD_VIEW, slot, gen), 5 | gen << 8
    patient.says(f"connection {patient.client}", f"reads the body in slot {slot} by reference 5")


def test_an_impossible_holding(patient: Patient) -> None:
    """A kind of holding that there is not."""
    memory, lib = patient.memory, patient.lib
    memory.holdings(patient.client, lib.SB_HOLD_CELL)[0].what = 0xE
    patient.says(f"connection {patient.client}: impossible entry 0xe in its holdings")


def test_holdings_that_bite_their_tail(patient: Patient) -> None:
    """Whoever follows the chain must not follow it for ever."""
    record = patient.memory.record(patient.client)
    patient.memory.slot("holdings", record.holdings).next = record.holdings
    patient.says(f"connection {patient.client}", f"holdings go on in slot {record.holdings}")


def test_a_connection_of_no_process(patient: Patient) -> None:
    """A connection belongs to a process slot that nobody has."""
    memory, lib = patient.memory, patient.lib
    word = memory.connections[patient.client]
    memory.connections[patient.client] = lib.sb_conn_word(
        lib.SB_CONN_LIVE, 3999, lib.sb_conn_slot(word), lib.sb_conn_epoch(word)
    )
    patient.says(f"connection {patient.client}", "process slot 3999, which nobody has")


def test_a_connection_with_the_record_of_another(patient: Patient) -> None:
    """Two connections share a record."""
    memory, lib = patient.memory, patient.lib
    own = next(
        number
        for number in range(1, lib.SB_MAX_CONNECTIONS)
        if number != patient.client and lib.sb_conn_state(memory.connections[number]) == lib.SB_CONN_LIVE
    )
    mine, word = lib.sb_conn_slot(memory.connections[own]), memory.connections[patient.client]
    memory.connections[patient.client] = lib.sb_conn_word(
        lib.SB_CONN_LIVE, lib.sb_conn_process(word), mine, lib.sb_conn_epoch(word)
    )
    patient.says(f"connection {patient.client}", f"slot {mine}, which is not its own")


# ---- slab and header ----


def test_a_chunk_of_a_class_that_is_none(patient: Patient) -> None:
    """A chunk is cut into slots of a class that there is not."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 0))
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_CLASS, 0, 60, 0)
    patient.says(f"chunk {chunk}: class 60, which does not exist")


def test_a_chunk_in_a_state_that_cannot_be(patient: Patient) -> None:
    """A state of a chunk that there is not."""
    chunk = patient.memory.chunk_of(patient.memory.body_slot("large", 0))
    patient.memory.chunks[chunk] = 7
    patient.says(f"chunk {chunk}: impossible state")


def test_a_chunk_beyond_the_memory(patient: Patient) -> None:
    """A chunk is in use that no segment has."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.header.chunk_limit + 5
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_CLASS, 0, 3, 0)
    patient.says(f"chunk {chunk}: in use, but there are only")


def test_a_run_that_is_broken(patient: Patient) -> None:
    """The second chunk of a long body is said to be free: somebody else would write there."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    assert lib.sb_chunk_run(memory.chunks[chunk]) == 3
    memory.chunks[chunk + 1] = lib.SB_CHUNK_FREE
    patient.says(f"chunk {chunk + 1}: does not fit the run it belongs to")


def test_a_run_that_goes_on_for_ever(patient: Patient) -> None:
    """A run that is longer than the memory."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    memory.chunks[chunk] = lib.sb_chunk_word(lib.SB_CHUNK_RUN, 0, 0, 9999)
    patient.says(f"chunk {chunk}: first of an impossible run of 9999 chunks")


def test_the_rest_of_a_run_without_its_beginning(patient: Patient) -> None:
    """The first chunk of a long body is said to be free."""
    memory, lib = patient.memory, patient.lib
    chunk = memory.chunk_of(memory.body_slot("large", 1))
    memory.chunks[chunk] = lib.SB_CHUNK_FREE
    patient.says(f"chunk {chunk + 1}: does not fit the run it belongs to")


def test_a_class_of_another_size(patient: Patient) -> None:
    """The table of classes says other sizes than the core knows."""
    patient.memory.classes[7].units = 100
    patient.says("class 7: slots of 100 units, not 7")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("magic", "header: magic is 0x5, not 0x"),
        ("layout_hash", "header: layout is 0x5, not 0x"),
        ("layout_major", "header: layout is 0x5, not 0x1"),
        ("memory_limit", f"header: limits say 5, not {64 << 20}"),
        ("chunks_per_segment", "header: limits say 5, not"),
    ],
)
def test_a_header_that_changed_under_its_users(patient: Patient, field: str, words: str) -> None:
    """Who is attached already is told; a new one is refused, see test_segments.py."""
    setattr(patient.memory.header, field, 5)
    patient.says(words)


def test_more_segments_than_there_can_be(patient: Patient) -> None:
    """The header says there are segments beyond the limit."""
    patient.memory.header.segments = 200
    patient.says("header: 200 segments, of at most")


def test_a_housekeeper_that_waits_nowhere(patient: Patient) -> None:
    """The header names a message as the place where the housekeeper waits."""
    slot = patient.memory.body_slot("jobs", 7)
    patient.memory.header.housekeeper_waiter = slot
    patient.says(f"header: the housekeeper waits at slot {slot}")
