# SPDX-License-Identifier: Apache-2.0
"""Small faults in the C core, each with the evidence that is expected to find it.

A mutant changes text that stands exactly once in its file. Its evidence is a command of the C tests: ``races`` with the
kind of search and a scenario, ``interleavings`` with a case, ``kill_at_step`` with an operation. If that does not find it,
the others are tried.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: what is replaced in a file of the core, and what is expected to find it."""

    name: str
    rule: str
    """What the core does otherwise, and why."""
    file: str
    edits: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]
    """A program of the C tests and its arguments."""


def races(kind: str, *scenarios: str) -> tuple[str, ...]:
    """Evidence: schedules of the C code."""
    return ("races", "-kind", kind, *scenarios)


def case(name: str) -> tuple[str, ...]:
    """Evidence: one actor in the middle of another's step."""
    return ("interleavings", name)


def kill(operation: str) -> tuple[str, ...]:
    """Evidence: a kill before every step of an operation."""
    return ("kill_at_step", operation)


MUTANTS = (
    Mutant(
        "no look after arming",
        "the IO thread arms its wake word, then looks once more (P6)",
        "sb_io.c",
        (("if (SB_LOAD(&c->shm->work, SB_SEQ_CST) != 0 || c->closed) {", "if (c->closed) {"),),
        races("orders", "consumer, put"),
    ),
    Mutant(
        "armed after the look",
        "a waiting get arms its word before it looks at the queue (P6)",
        "sb_waiter.c",
        (
            (
                "uint32_t armed = sb_wake_arm(wake); /* P6: before the node can be notified, so that",
                "uint32_t armed; /*",
            ),
            (
                "(void)sb_wake_sleep(wake, armed, sleep_until(until), &interrupted);",
                "armed = sb_wake_arm(wake);\n    (void)sb_wake_sleep(wake, armed, sleep_until(until), &interrupted);",
            ),
        ),
        races("orders", "wait, put"),
    ),
    Mutant(
        "interested after the look",
        "a consumer is INTERESTED before it looks; a producer appends before it reads who is (P3)",
        "sb_waiter.c",
        (
            (
                "if (state != SB_NODE_INTERESTED &&\n",
                "status = try_take(q, t);\n    if (state != SB_NODE_INTERESTED &&\n",
            ),
            ("status = try_take(q, t); /* P3: INTERESTED first, then look */\n", "\n"),
            ("if (status == SB_EMPTY && sb_queue_ready(q->c->b, q->shm) > 0 && sb_upkeep_rescan(q) > 0) {", "if (0) {"),
        ),
        races("orders", "wait, put"),
    ),
    Mutant(
        "arming is no barrier",
        "arming is a seq_cst operation: the look after it may not pass it (P6)",
        "sb_wait.c",
        (("(void)SB_SWAP(w, armed, SB_SEQ_CST);", "SB_STORE(w, armed, SB_RELEASE);"),),
        races("delays", "consumer, put"),
    ),
    Mutant(
        "nothing came back, is seen late",
        "who says that nothing came back any more looks again after others can see it (P5)",
        "sb_returned.c",
        (("SB_STORE(r->returned, 0, SB_SEQ_CST);", "SB_STORE(r->returned, 0, SB_RELEASE);"),),
        races("delays", "nack again, take"),
    ),
    Mutant(
        "held before it is announced",
        "the holding is written before the cell is taken, so that a reaper finds it (P8)",
        "sb_queue.c",
        (
            ("sb_holding_set(b, token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf->slot), position);\n", "\n"),
            (
                'SB_CRASHPOINT("queue.take.done");',
                'SB_CRASHPOINT("queue.take.done");\n'
                "  sb_holding_set(b, token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf->slot), position);",
            ),
        ),
        kill("get"),
    ),
    Mutant(
        "allocated before it is announced",
        "the holding is written before the slot is taken (P8)",
        "sb_slab.c",
        (
            ("sb_holding_set(c->b, token, sb_holding_what(SB_HOLD_SLOT, slot, *gen), 0);\n", "\n"),
            (
                "uint64_t chunk = SB_LOAD(&c->b->chunks[slot / SB_CHUNK_UNITS], SB_SEQ_CST);\n",
                "sb_holding_set(c->b, token, sb_holding_what(SB_HOLD_SLOT, slot, *gen), 0);\n"
                "  uint64_t chunk = SB_LOAD(&c->b->chunks[slot / SB_CHUNK_UNITS], SB_SEQ_CST);\n",
            ),
        ),
        kill("put"),
    ),
    Mutant(
        "published before its intent",
        "the intent stands before the slot is published",
        "sb_queue.c",
        (
            ("sb_intent_begin(l, SB_INTENT_ENQUEUE, SB_COUNT_ADDED, UINT64_MAX, slot, gen, bytes);\n", "\n"),
            (
                'SB_CRASHPOINT("queue.enqueue.published");',
                'SB_CRASHPOINT("queue.enqueue.published");\n'
                "  sb_intent_begin(l, SB_INTENT_ENQUEUE, SB_COUNT_ADDED, UINT64_MAX, slot, gen, bytes);",
            ),
        ),
        kill("put"),
    ),
    Mutant(
        "appended before it is announced",
        "the position is announced before the cell is filled (P11)",
        "sb_ring.c",
        (
            ("if (announce != NULL) {\n        SB_STORE(announce, at, SB_RELEASE); /* P11 release */\n      }\n", "\n"),
            (
                'SB_CRASHPOINT("ring.append.done");',
                'SB_CRASHPOINT("ring.append.done");\n        if (announce != NULL) SB_STORE(announce, at, SB_RELEASE);',
            ),
        ),
        kill("put"),
    ),
    Mutant(
        "a put is always rolled back",
        "the reaper looks whether the cell names the slot: then the put happened",
        "sb_judge.c",
        (
            (
                "if (!there) {\n        if (SB_LOAD(header, SB_SEQ_CST) != h) continue;",
                "if (1) {\n        if (SB_LOAD(header, SB_SEQ_CST) != h) continue;",
            ),
        ),
        kill("put"),
    ),
    Mutant(
        "an ack is always rolled back",
        "the reaper looks whether the reference is gone: then the ack happened",
        "sb_judge.c",
        (("bool gone = reference_gone(w, i), found", "bool gone = false, found"),),
        kill("ack"),
    ),
    Mutant(
        "generation is not asked",
        "a reference is gone, too, when the slot has another generation",
        "sb_judge.c",
        (
            (
                "return sb_slot_gen(h) != i->gen || (sb_slot_refs(h) >> i->ref & 1) == 0;",
                "return (sb_slot_refs(h) >> i->ref & 1) == 0;",
            ),
        ),
        races("kills", "ack, put, long"),
    ),
    Mutant(
        "tombstone before the reference",
        "the reference is dropped first: from then on the ack happened",
        "sb_queue.c",
        (
            (
                "static void finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *leaf, const sb_taken *t) {\n  bool freed;\n",
                "static void finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *leaf, const sb_taken *t) {\n  bool freed;\n"
                "  sb_ring_finish(c, r, leaf, t->position);\n",
            ),
            (
                'SB_CRASHPOINT("queue.settle.dropped");\n  sb_ring_finish(c, r, leaf, t->position);\n',
                'SB_CRASHPOINT("queue.settle.dropped");\n',
            ),
        ),
        kill("ack"),
    ),
    Mutant(
        "intent ends before the count",
        "counters are raised under the intent, so that a reaper knows whether they were",
        "sb_queue.c",
        (
            (
                "sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, bytes);\n",
                "sb_intent_end(q->ledger);\n  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, bytes);\n",
            ),
            ("sb_ledger_hold(q->ledger, -1);\n  sb_intent_end(q->ledger);\n", "sb_ledger_hold(q->ledger, -1);\n"),
        ),
        kill("ack"),
    ),
    Mutant(
        "redelivery is not marked",
        "the reaper marks what a dead one held",
        "sb_judge.c",
        (
            (
                "if (sb_cell_state(word) == SB_CELL_ACQUIRED) {\n    SB_STORE(&cell->side, side | SB_SIDE_REDELIVERED, SB_RELEASE);\n  }\n",
                "(void)side;\n",
            ),
        ),
        races("orders", "reap, take"),
    ),
    Mutant(
        "the reaper lets the connection go first",
        "a connection's id is free only when all that names it is gone: a second reaper finds it by that",
        "sb_recover.c",
        (
            (
                "    free_holdings(w, shm);\n    uint32_t record",
                "    (void)SB_CAS(&w->b->connections[w->id], &word, sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(word)), "
                "SB_ACQ_REL);\n    free_holdings(w, shm);\n    uint32_t record",
            ),
        ),
        kill("reap"),
    ),
    Mutant(
        "the reaper lets accounts go before cells",
        "cells are released before the ledger that counts them is given to somebody else",
        "sb_recover.c",
        (
            (
                "each_holding(&w, shm, visit_cells);\n    each_holding(&w, shm, visit_ledgers);",
                "each_holding(&w, shm, visit_ledgers);\n    each_holding(&w, shm, visit_cells);",
            ),
        ),
        races("orders", "reap, wait"),
    ),
    Mutant(
        "hint beyond a free cell",
        "the shared hint of the head never passes a cell that was not filled yet",
        "sb_queue.c",
        (("sb_ring_advance(&q->shm->head, hint, at);", "sb_ring_advance(&q->shm->head, hint, at + 1);"),),
        races("orders", "put, take"),
    ),
    Mutant(
        "hint passes what is held",
        "what is behind the hint is found only by its bit, which is set before the cell comes back (P5)",
        "sb_queue.c",
        (
            ("sb_returned_mark(c->b, &q->ring, t.position); /* P5: first the bits, then the cell */\n", "\n"),
            (
                "if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {\n      sb_returned_mark(c->b, &q->ring, t.position);\n    }\n  }\n  sb_ledger_hold",
                "(void)word;\n  }\n  sb_ledger_hold",
            ),
        ),
        races("orders", "nack behind, take"),
    ),
    Mutant(
        "the bit of a held cell is cleared",
        "a bit stays while somebody holds its cell, who may be about to return it (P5)",
        "sb_queue.c",
        (
            (
                "sb_cell_is_owned(word) || sb_cell_state(word) == SB_CELL_HELD) {\n      continue;",
                "0) {\n      continue;",
            ),
            (
                "word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST); /* P5: look a second time after clearing */\n",
                "\n",
            ),
        ),
        races("orders", "nack behind, take"),
    ),
    Mutant(
        "a bit cleared in vain hides others",
        "who cleared a bit in vain gives it back, and searches again (I41)",
        "sb_returned.c",
        (("mark_from(b, r, first, p->height);\n        *again = true;", "mark_from(b, r, first, p->height);"),),
        case("cleared in vain"),
    ),
    Mutant(
        "the newest is evicted",
        "who paid for an eviction looks once more whether there are too many (I24)",
        "sb_limits.c",
        (("return limit == 0 || t->pending >= limit; }", "return (void)t, (void)limit, true; }"),),
        case("newest spared"),
    ),
    Mutant(
        "hints are set right beside a payer",
        "hints are only set right when nobody is between two changes of them (I23)",
        "sb_ledger.c",
        (("if ((hinting & SB_HINTING_DEPTH) != 0) {\n      return false;\n    }\n", "\n"),),
        case("reconciled"),
    ),
    Mutant(
        "room is read and then taken",
        "a place under a limit is taken by CAS: two that see the same place do not both get it",
        "sb_limits.c",
        (
            (
                "} while (!SB_CAS(&q->shm->admitted, &places, places + count, SB_SEQ_CST));",
                "} while (SB_ADD(&q->shm->admitted, count, SB_SEQ_CST) == UINT64_MAX);",
            ),
        ),
        races("orders", "room, two wait"),
    ),
    Mutant(
        "forget the baton of room",
        "a producer that was told of room, and does not use it, tells the next one",
        "sb_waiter.c",
        (("sb_consumer_room_made(q->c, q->shm, q->slot); /* the baton: there may be room for another one */", ";"),),
        races("orders", "room, one gives up"),
    ),
    Mutant(
        "forget the baton",
        "a consumer that leaves although there is work tells another one (I31)",
        "sb_consumer.c",
        (
            (
                "SB_IN(SB_NODE_NOTIFIED), SB_NODE_NOT_INTERESTED)) {\n    pass_baton(s->q);",
                "SB_IN(SB_NODE_NOTIFIED), SB_NODE_NOT_INTERESTED)) {",
            ),
        ),
        races("orders", "suspend, put"),
    ),
    Mutant(
        "bits of work in the wrong order",
        "the IO thread clears the connection's bits before the targets' (P9)",
        "sb_consumer.c",
        (
            ("(void)SB_OR(&conn->work, UINT64_C(1) << (target / 64), SB_SEQ_CST);\n", "\n"),
            (
                "(void)SB_OR(&conn->work_targets[target / 64],",
                "(void)SB_OR(&conn->work, UINT64_C(1) << (target / 64), SB_SEQ_CST);\n  (void)SB_OR(&conn->work_targets[target / 64],",
            ),
        ),
        races("orders", "consumer, put"),
    ),
    Mutant(
        "a page is linked by a store",
        "of two that make a page, one links it by CAS",
        "sb_page.c",
        (
            (
                "if (SB_CAS(link, &expected, sb_link_word(p->height, p->slot, p->gen), SB_SEQ_CST)) { /* P4 release */",
                "SB_STORE(link, sb_link_word(p->height, p->slot, p->gen), SB_SEQ_CST);\n  if (expected != 1) {",
            ),
        ),
        races("orders", "put past a page"),
    ),
    Mutant(
        "a view without a reference",
        "a body that somebody looks at is not freed",
        "sb_view.c",
        (("h | SB_PUT(UINT64_C(1) << ref, 2), SB_ACQ_REL)", "h, SB_ACQ_REL)"),),
        races("orders", "view, take"),
    ),
    Mutant(
        "a move that did not happen keeps its reference",
        "the reaper drops the second reference of a move that did not happen",
        "sb_judge.c",
        (
            (
                "(void)sb_slab_drop(w->b, i->slot, i->gen, i->target_ref, &freed);\n    clear(l, i);",
                "(void)freed;\n    clear(l, i);",
            ),
        ),
        kill("move"),
    ),
    Mutant(
        "delete if empty does not look",
        "whoever meets a closing cell looks whether there are messages before it",
        "sb_upkeep.c",
        (("((word & SB_CLOSING_IF_EMPTY) != 0 && holds_messages(b, r, position));", "((void)holds_messages, false);"),),
        races("orders", "delete if empty, put"),
    ),
    Mutant(
        "topology without its lock",
        "names are changed under the topology lock",
        "sb_directory.c",
        (("if (sb_lock_byte(b->topology_fd, SB_LOCK_TOPOLOGY)) {", "if (1) {"),),
        races("orders", "two declare"),
    ),
)
