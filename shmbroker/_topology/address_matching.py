# SPDX-License-Identifier: Apache-2.0
"""Matches of address settings: which addresses a match covers, and which of two matches is the more specific one.

An *address* is the name of a queue. A *match* is the name of one address, or a pattern for several. Both consist of
words that dots separate. In a match, the word ``*`` stands for exactly one word, and the word ``#`` for any number of
words, also for none. ``#`` can only be the last word. So ``a.#`` covers ``a``, ``a.b`` and ``a.b.c``, but not ``ab``;
and ``#`` covers every address. These are the patterns of a topic exchange, except that there ``#`` can stand anywhere.

Of two matches that cover the same address, the more specific one is the first by these rules:

1. A match without ``#`` precedes one with ``#``.
2. Of two with ``#``, the one with more words precedes.
3. Otherwise both have the same number of words. At the first word in which they differ, one of them has ``*``: the
   other one precedes.

So for each address, these rules put all matches that cover it in one order. The address itself, as a match, precedes
all others. For the address ``a.b.c.d`` the order is, for example: ``a.b.c.d``, ``a.b.c.*``, ``a.b.*.d``, ``a.b.c.#``,
``a.b.#``, ``a.#``, ``#``.
"""

from __future__ import annotations

from shmbroker._amqp.utf8 import SHORT_STRING, size_in_utf8
from shmbroker._topology.matching import words_of

ONE_WORD, ANY_WORDS = "*", "#"


def check_match(match: object) -> str:
    """Checks a match, and returns it.

    Raises:
        TypeError: it is no string.
        ValueError: it is not 1 to 255 bytes of UTF-8 without NUL; ``#`` is not its last word; or a wildcard is only a
            part of a word.

    >>> check_match("orders.*.#")
    'orders.*.#'
    >>> check_match("orders.#.eu")
    Traceback (most recent call last):
    ValueError: match='orders.#.eu': '#' is allowed as the last word only
    """
    if not isinstance(match, str):
        msg = f"match={match!r}: a string is needed"
        raise TypeError(msg)
    if not 1 <= (size_in_utf8(match) or 0) <= SHORT_STRING or "\0" in match:
        msg = f"match={match!r}: 1 to {SHORT_STRING} bytes of UTF-8 without NUL are allowed"
        raise ValueError(msg)
    *first, last = words_of(match)
    if ANY_WORDS in first:
        msg = f"match={match!r}: '#' is allowed as the last word only"
        raise ValueError(msg)
    for word in (*first, last):
        if len(word) > 1 and (ONE_WORD in word or ANY_WORDS in word):
            msg = f"match={match!r}: a wildcard is a whole word: '*' and '#' are allowed between dots, not in {word!r}"
            raise ValueError(msg)
    return match


def covers(match: str, address: str) -> bool:
    """Whether a match covers an address.

    >>> [covers("a.b.#", one) for one in ("a.b", "a.b.c", "a.babc")]
    [True, True, False]
    """
    pattern, words = words_of(match), words_of(address)
    if pattern[-1] == ANY_WORDS:
        pattern = pattern[:-1]
        if len(words) < len(pattern):
            return False
    elif len(words) != len(pattern):
        return False
    return all(expected in {ONE_WORD, word} for expected, word in zip(pattern, words, strict=False))


def precedence(match: str) -> tuple[object, ...]:
    """Returns the key by which matches are sorted: of those that cover an address, the most specific one comes first.

    >>> sorted(["#", "a.#", "a.*", "a.b"], key=precedence)
    ['a.b', 'a.*', 'a.#', '#']
    """
    words = words_of(match)
    any_words = words[-1] == ANY_WORDS
    return any_words, -len(words) if any_words else 0, [word == ONE_WORD for word in words], match
