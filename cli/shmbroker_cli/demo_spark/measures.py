# SPDX-License-Identifier: Apache-2.0
"""The measures of a source file: those of its text, and those of its tokens."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import tokenize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BLANK = r"\A[ \t\r\f]*\z"
"""The pattern of a blank line, in Java's syntax.

A line may contain any byte but a line feed. Java's `$` would also match before a last byte such as 0x85.
"""
COMMENT = r"\A[ \t\f]*#"
_BLANK, _COMMENT = re.compile(BLANK.replace(r"\z", r"\Z").encode()), re.compile(COMMENT.encode())
_NO_TOKENS = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError)


@dataclasses.dataclass(frozen=True)
class Score:
    """The measures of the tokens of a file, or their sums over many files.

    Attributes:
        tokens: Number of tokens; comments and white space do not count.
        vocabulary: Number of different tokens in a file.
        volume: Halstead's volume: the number of tokens times the binary logarithm of the vocabulary.
        unread: Number of files that cannot be tokenised; these have only measures of their text.
    """

    tokens: int = 0
    vocabulary: int = 0
    volume: float = 0.0
    unread: int = 0


@dataclasses.dataclass(frozen=True)
class Measures(Score):
    """All measures of a file, or their totals over many files.

    Attributes:
        size: Number of bytes.
        lines: Number of lines; what follows the last line feed counts as a line, even if it is empty.
        blank: Lines of nothing but white space.
        comments: Lines of nothing but a comment.
        longest: The longest line, in bytes.
    """

    size: int = 0
    lines: int = 0
    blank: int = 0
    comments: int = 0
    longest: int = 0

    @classmethod
    def from_json(cls, body: bytes) -> Measures:
        """Return the measures that are in the body of a result.

        Args:
            body: A JSON object: the name of each measure, and its value.
        """
        return cls(**json.loads(body))


def score(source: bytes) -> Score:
    r"""Tokenise a source file, and compute the measures of its tokens.

    Args:
        source: Its content, in the encoding that it declares.

    >>> score(b"a = a + 1  # more\n")
    Score(tokens=5, vocabulary=4, volume=10.0, unread=0)
    >>> score(b"'''\n")
    Score(tokens=0, vocabulary=0, volume=0.0, unread=1)
    """
    try:
        found = [
            one.string for one in tokenize.tokenize(io.BytesIO(source).readline) if one.type not in _NO_TOKENS
        ]  # fmt: skip
    except _UNREADABLE:
        return Score(unread=1)
    vocabulary = len(set(found))
    return Score(len(found), vocabulary, len(found) * math.log2(vocabulary or 1))


def measure(source: bytes) -> Measures:
    r"""Compute all measures of a source file, in this process.

    Args:
        source: Its content.

    >>> measure(b"import os\n\n    # that is all\n")
    Measures(tokens=2, vocabulary=2, volume=2.0, unread=0, size=29, lines=4, blank=2, comments=1, longest=17)
    """
    lines = source.split(b"\n")
    return Measures(
        **dataclasses.asdict(score(source)),
        size=len(source),
        lines=len(lines),
        blank=sum(_BLANK.search(line) is not None for line in lines),
        comments=sum(_COMMENT.search(line) is not None for line in lines),
        longest=max(map(len, lines)),
    )


def total(found: Iterable[Measures]) -> Measures:
    """Add up the measures of files, in whatever order they come; of the longest lines, take the longest.

    Args:
        found: The measures of each.

    >>> total([Measures(tokens=1, longest=3), Measures(tokens=2, longest=5)]).tokens
    3
    """
    files = list(found)
    sums = {field.name: sum(getattr(one, field.name) for one in files) for field in dataclasses.fields(Measures)}
    sums["volume"] = math.fsum(one.volume for one in files)
    sums["longest"] = max((one.longest for one in files), default=0)
    return Measures(**sums)
