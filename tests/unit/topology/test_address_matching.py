# SPDX-License-Identifier: Apache-2.0
"""Matches of address settings: what they cover, and which one is the more specific (Artemis' RepositoryTest)."""

from __future__ import annotations

import itertools
import random

import pytest

from shmbroker._topology.address_matching import check_match, covers, precedence
from shmbroker._topology.binding import Binding, ToQueue
from shmbroker._topology.matching import Topic

WILDCARDS = ("#", "a", "a.#", "a.*", "a.b.c", "a.*.c", "a.d.c", "a.b.#", "a.b", "a.b.c.#", "a.b.c.d", "a.*.*.d",
             "a.*.d.#")  # fmt: skip
MATCHES = ("#", "a.b.#", "a.b.d.#", "a.b.c.d.e.#", "a.b.c.d.e.*", "a.b.c.d.e.f")
MERGED = {"#": 1, "a.#": 2, "b.#": 3, "a.b.#": 4, "b.c.#": 5, "a.b.c.#": 6, "a.b.*.d": 7, "a.b.c.*": 8}


def order(matches: object, address: str) -> list[str]:
    """Return the matches that cover an address, the most specific one first."""
    return sorted((match for match in matches if covers(match, address)), key=precedence)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("a", "a"),
        ("a.b", "a.b"),
        ("a.x", "a.*"),
        ("a.b.x", "a.b.#"),
        ("a.b.c", "a.b.c"),
        ("a.d.c", "a.d.c"),
        ("a.x.c", "a.*.c"),
        ("a.b.c.d", "a.b.c.d"),
        ("a.x.c.d", "a.*.*.d"),
        ("a.b.x.d", "a.*.*.d"),
        ("a.d.x.d", "a.*.*.d"),
        ("a.d.d.g", "a.*.d.#"),
        ("zzzz.z.z.z.d.r.g.f.sd.s.fsdfd.fsdfs", "#"),
        ("a.babc", "a.*"),
    ],
)
def test_t68_the_table_of_wildcards(address: str, match: str) -> None:
    """The most specific match is the one of RepositoryTest.testMultipleWildcards."""
    assert order(WILDCARDS, address)[0] == match


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("a.b", "a.b.#"),
        ("a.b.c", "a.b.#"),
        ("a.b.d.lll", "a.b.d.#"),
        ("a.b.c.d.e", "a.b.c.d.e.#"),
        ("a.b.c.d.e.x", "a.b.c.d.e.*"),
        ("a.b.c.d.e.f", "a.b.c.d.e.f"),
        ("a.b.c.d.e.x.y", "a.b.c.d.e.#"),
        ("a.babc", "#"),
        ("z.z.z.z.z", "#"),
    ],
)
def test_t68_the_table_of_matches(address: str, match: str) -> None:
    """The most specific match is the one of RepositoryTest.testMultipleMatches and testMatchingDocs."""
    assert order(MATCHES, address)[0] == match


def test_t68_the_order_of_a_merge() -> None:
    """The settings of `a.b.c.d` are merged in the order of RepositoryTest.testRepositoryMerge."""
    assert [MERGED[match] for match in order(MERGED, "a.b.c.d")] == [8, 7, 6, 4, 2, 1]
    assert [MERGED[match] for match in order(MERGED, "a.b.c")] == [6, 4, 2, 1]
    assert order(MERGED, "z") == ["#"]


def test_a_longer_word_is_not_more_specific() -> None:
    """Words count, not letters."""
    assert order(["abcdefgh.#", "*.b.#"], "abcdefgh.b") == ["*.b.#", "abcdefgh.#"]


def test_of_two_with_the_same_words_the_first_difference_decides() -> None:
    """A word precedes `*`, from the left, with and without `#`."""
    assert order(["*.b.c", "a.*.*", "a.b.*", "a.*.c"], "a.b.c") == ["a.b.*", "a.*.c", "a.*.*", "*.b.c"]
    assert order(["*.b.#", "a.*.#", "a.b.#"], "a.b.c") == ["a.b.#", "a.*.#", "*.b.#"]


@pytest.mark.parametrize("match", ["x.#.y", "#.y", "#.#", "hjhjhjhjh.#.hhh"])
def test_t68_any_number_of_words_only_at_the_end(match: str) -> None:
    """`#` elsewhere than at the end is refused with a text that says so."""
    with pytest.raises(ValueError, match="'#' is allowed as the last word only") as refusal:
        check_match(match)
    assert f"match={match!r}" in str(refusal.value)


@pytest.mark.parametrize("match", ["a*", "*a", "a.b#", "##", "**", "a.x*y.#", "(a.#)"])
def test_a_wildcard_is_a_whole_word(match: str) -> None:
    """A wildcard within a word is refused: it would mean only itself."""
    with pytest.raises(ValueError, match="a wildcard is a whole word"):
        check_match(match)


@pytest.mark.parametrize("match", ["", "x" * 256, "a\0b", "\ud800"])
def test_a_match_is_no_longer_than_a_name(match: str) -> None:
    """A match has 1 to 255 bytes of UTF-8 without NUL, as the name of a queue."""
    with pytest.raises(ValueError, match="1 to 255 bytes of UTF-8 without NUL are allowed"):
        check_match(match)


@pytest.mark.parametrize("match", [None, 1, b"a", ["a"]])
def test_a_match_is_a_string(match: object) -> None:
    """Anything else is a TypeError that shows what was given."""
    with pytest.raises(TypeError, match="a string is needed"):
        check_match(match)


@pytest.mark.parametrize("match", ["a", "#", "*", "a.*.#", "..", "a..b", "\u00e9.*", "x" * 255])
def test_allowed_matches_are_returned(match: str) -> None:
    """Words may be empty, as in routing keys."""
    assert check_match(match) == match


def test_patterns_are_those_of_a_topic_exchange() -> None:
    """A match covers an address exactly if a topic exchange with that pattern routes that key."""
    draw = random.Random(3)
    patterns = {".".join(words) for n in (1, 2, 3) for words in itertools.product(("a", "b", "*"), repeat=n)}
    patterns |= {f"{pattern}.#" for pattern in patterns} | {"#"}
    addresses = [".".join(draw.choices(("a", "b", "c", ""), k=draw.randint(1, 4))) for _ in range(200)]
    for pattern in sorted(patterns):
        topic = Topic()
        topic.add(Binding("t", ToQueue("q", 1), pattern, b""), 0)
        for address in filter(None, addresses):
            assert covers(pattern, address) == bool(topic.leaves([address], {})), (pattern, address)


def test_the_order_has_no_ties() -> None:
    """Of any two different matches that cover an address, one precedes by the rules alone, whatever their letters."""
    patterns = [".".join(words) for n in (1, 2, 3) for words in itertools.product(("a", "*"), repeat=n)]
    patterns += [f"{pattern}.#" for pattern in patterns] + ["#"]
    for address in ("a", "a.a", "a.a.a", "a.a.a.a"):
        keys = [precedence(match)[:-1] for match in order(patterns, address)]
        assert all(keys.count(key) == 1 for key in keys)
