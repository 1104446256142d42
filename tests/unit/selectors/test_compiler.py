# SPDX-License-Identifier: Apache-2.0
"""What is a selector, and what is refused: with the argument, the selector, the place and what is allowed."""

from __future__ import annotations

import pytest

from shmbroker import InvalidSelector
from shmbroker._selectors.compiler import MAX_SELECTOR, compile_name, compile_selector

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "text",
    [
        "region = 'eu'",
        "region='it''s' AND NOT(weight<=2.5e3)",
        "a\r\n=\t1",
        "urgent",
        "a AND (b OR NOT c)",
        "(a) = (1)",
        "a + 1 * -2 / 3 - .5 >= 7.",
        "a = 0x1F OR a = 0xffL OR a = 5L OR a = 5d OR a = 5F OR a = 1e-3",
        f"a BETWEEN {LEAST} AND {MOST}",
        "a between b and c and d",
        "a NOT BETWEEN 'x' AND 'y'",
        "a IN ('x', 'y') OR a NOT IN (1, -2.5, 'z')",
        "a LIKE '%_' AND b NOT LIKE '!%' ESCAPE '!' AND c LIKE '%%' ESCAPE '%' AND d LIKE '____' ESCAPE '_'",
        "a IS NULL OR b + 1 IS NOT NULL",
        "TRUE = a AND fAlSe <> b",
        '"x-death" IS NULL AND "a""b" = 1 AND "not" AND "priority" = \'high\'',
        "$a._b1 = 1 AND _c AND größe > 1",
        "nothing = 1 AND inside AND android",
        "priority > 3 AND content_type = 'a' AND timestamp < 5 AND JMSXGroupID = 'g' AND JMS_vendor = 1",
        "JMSPriority > 3 AND JMSDeliveryMode = 'PERSISTENT' AND JMSMessageID <> 'x' AND JMSTimestamp > 5",
        "JMSCorrelationID LIKE 'a%' AND JMSType IN ('a', 'b')",
        "(" * 4000 + "a" + ")" * 4000,
        "NOT " * 2000 + "a",
        " OR ".join(["a"] * 1500),
        f"a = '{'x' * 5000}'",
        "é" * 64,
    ],
)
def test_a_selector_is_compiled(text: str) -> None:
    """Each form of the language, also as long and as deep as a selector may be, gives a program."""
    assert compile_selector(text)[0] == 1
    assert compile_selector(text) is compile_selector(text)  # it is compiled once


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("", 1, 1, "a condition is needed"),
        ("  \n ", 1, 1, "a condition is needed"),
        ("a =", 1, 4, "the text ends where more is needed"),
        ("a AND\n  b OR  ", 2, 7, "the text ends where more is needed"),
        ("a = = 1", 1, 5, "'=' is not allowed here"),
        ("a != 1", 1, 3, "'!=' is not allowed here: '<>' says that two values differ"),
        ("a ! 1", 1, 3, "'!' is not allowed here"),
        ("a = 1 b", 1, 7, "'b' is not allowed here"),
        ("a = 1)", 1, 6, "')' is not allowed here"),
        ("(a = 1", 1, 7, "the text ends"),
        ("a = NULL", 1, 5, "'NULL' is not allowed here"),
        ("not = 1", 1, 5, "'=' is not allowed here"),
        ("a IN ()", 1, 7, "')' is not allowed here"),
        ("a IN (b)", 1, 7, "'b' is not allowed here"),
        ("a LIKE b", 1, 8, "'b' is not allowed here"),
        ("a = b = c", 1, 7, "'=' is not allowed here"),
        ("a ==\n b", 1, 4, "'=' is not allowed here"),
        ("a = 1 OR\n\n   b ? 2", 3, 6, "'?' is not allowed here"),
        ("a = 'x", 1, 5, "the string that begins here has no end"),
        ("a = 'x''", 1, 5, "the string that begins here has no end"),
        ('"a = 1', 1, 1, "the name that begins here has no end"),
        ("a = 5x", 1, 5, "a number is followed by a letter, a digit or a point"),
        ("a = 1.2.3", 1, 5, "a number is followed by"),
        ("a = 007", 1, 5, "an integer without leading zeros is allowed"),
        ("a = 1.5L", 1, 5, "the suffix L is allowed behind an integer"),
        ("a = 1e999", 1, 5, "a number up to 1.79"),
        (f"a = {MOST + 1}", 1, 5, f"an integer from {LEAST} to {MOST} is allowed"),
        (f"a = +{MOST + 1}", 1, 6, f"an integer from {LEAST} to {MOST} is allowed"),
        (f"a IN ({MOST + 1})", 1, 7, f"an integer from {LEAST} to {MOST} is allowed"),
        (f"a = - -{MOST + 1}", 1, 5, f"an integer from {LEAST} to {MOST} is allowed"),
        (f"a = {LEAST - 1}", 1, 6, f"an integer from {LEAST} to {MOST} is allowed"),
        ("a = 0x10000000000000000", 1, 5, f"an integer from {LEAST} to {MOST} is allowed"),
        (f"a = {'9' * 6000}", 1, 5, f"{'9' * 40}...: an integer from"),
        ("a LIKE 'x!y' ESCAPE '!'", 1, 8, "'!y' in a pattern: %, _ or ! is allowed behind the escape character"),
        ("a LIKE 'x!' ESCAPE '!'", 1, 8, "'!' in a pattern"),
        ("a LIKE 'x' ESCAPE 'ab'", 1, 19, "ESCAPE 'ab': one character is allowed"),
        ("a LIKE 'x' ESCAPE ''", 1, 19, "ESCAPE '': one character is allowed"),
        (f"a LIKE '{'x' * 1025}'", 1, 8, "a pattern of 1025 bytes: at most 1024 are allowed"),
        ('"" = 1', 1, 1, "a name of 0 bytes: 1 to 128 bytes of UTF-8 are allowed"),
        ("é" * 65, 1, 1, "a name of 130 bytes"),
        ("headers = 1", 1, 1, "headers is the table of all headers: the name of one header is allowed"),
        ("a = 1 AND JMSRedelivered", 1, 11, "JMSDeliveryMode, JMSPriority, JMSMessageID"),
        ("a = 'x\x00\ud800'", 1, 8, "text that can be written in UTF-8 is allowed"),
        ("b\na = '\ud800'", 2, 6, "text that can be written in UTF-8 is allowed"),
        ("1+(" * 40 + "1" + ")" * 40 + "=1", 1, 80, "at most 32 values may wait"),
        (" AND (".join(["a"] * 40) + ")" * 39, 1, 100, "at most 32 values may wait"),
    ],
)
def test_what_is_no_selector_is_refused(text: str, line: int, column: int, why: str) -> None:
    """The error names the argument, the place, what is wrong there and what is allowed."""
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(text)
    error = caught.value
    assert str(error).startswith("selector=")
    assert why in str(error)
    if "may wait" not in why:
        assert (error.line, error.column) == (line, column)
    assert f"line {error.line}, column {error.column}: " in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("1", 1, "a number is not allowed here: a selector is a condition"),
        ("'a'", 1, "a string is not allowed here: a selector is a condition"),
        ("a + 1", 1, "a number is not allowed here"),
        ("a AND 'b'", 7, "a string is not allowed here: AND needs conditions"),
        ("1 OR a", 1, "a number is not allowed here: OR needs conditions"),
        ("NOT JMSPriority", 5, "a number is not allowed here: NOT needs a condition"),
        ("a + 'b' = 1", 5, "a string is not allowed here: + needs numbers"),
        ("(a = 1) * 2 = 2", 2, "a boolean is not allowed here: * needs numbers"),
        ("-'a' = 1", 2, "a string is not allowed here: - needs a number"),
        ("+TRUE = 1", 2, "a boolean is not allowed here: + needs a number"),
        ("1 LIKE 'a'", 1, "a number is not allowed here: LIKE needs a string"),
        ("timestamp LIKE 'a'", 1, "a number is not allowed here: LIKE needs a string"),
        ("JMSPriority = 'high'", 15, "a number is compared with a string: values of one type are allowed"),
        ("type < 5", 8, "a string is compared with a number"),
        ("a < TRUE", 5, "booleans have no order: = and <> are allowed"),
        ("FALSE >= a", 1, "booleans have no order"),
        ("a BETWEEN FALSE AND b", 11, "booleans have no order"),
        ("a BETWEEN b AND TRUE", 17, "booleans have no order"),
        ("1 BETWEEN 0 AND 'b'", 17, "a number is compared with a string"),
        ("type IN ('a', 1)", 15, "a string is compared with a number"),
        ("a IN (TRUE)", 7, "a boolean in a list of IN: strings and numbers are allowed"),
    ],
)
def test_operands_have_the_type_that_is_needed(text: str, column: int, why: str) -> None:
    """Types that no message can make right are refused before any message is seen."""
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(text)
    assert why in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize("text", ["x" * (MAX_SELECTOR + 1), "é" * (MAX_SELECTOR // 2 + 1), "a = 1 " * 200_000])
def test_a_selector_that_is_too_long(text: str) -> None:
    """It is refused before it is parsed; the error shows its beginning."""
    with pytest.raises(InvalidSelector, match=f"at most {MAX_SELECTOR} bytes of UTF-8 are allowed") as caught:
        compile_selector(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("text", ["(" * 8000, "(" * 8000 + "a", "NOT " * 2000, "1+" * 4000, "'" * 8191])
def test_deep_and_endless_text(text: str) -> None:
    """Text that opens thousands of parts and closes none is refused like any other."""
    with pytest.raises(InvalidSelector):
        compile_selector(text)


@pytest.mark.parametrize("given", [5, b"a = 1", None, ["a"], True])
def test_a_selector_is_a_string(given: object) -> None:
    """Anything else is a TypeError that names the argument and the value."""
    with pytest.raises(TypeError, match=r"selector=.*: a string is needed"):
        compile_selector(given)
    with pytest.raises(TypeError, match=r"group_by=.*: a string is needed"):
        compile_name(given, "group_by")


@pytest.mark.parametrize("text", ["region", '"x-y"', "JMSType", "a.b", " a "])
def test_a_name_is_compiled(text: str) -> None:
    """A name alone is a program for its value."""
    assert compile_name(text, "group_by")[0] == 1


@pytest.mark.parametrize("text", ["", "a b", "a = 1", "5", "'a'", "x-y", "(a)", "JMSFoo", "headers"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """A name is nothing but a name; the error names the argument."""
    with pytest.raises(InvalidSelector, match=r"^group_by="):
        compile_name(text, "group_by")
