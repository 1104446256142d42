# SPDX-License-Identifier: Apache-2.0
"""Selectors in the core against a model that evaluates a tree, for any condition and any headers."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

if (HERE := str(Path(__file__).parent)) not in sys.path:
    sys.path.insert(0, HERE)

from selector_model import (
    LEAST,
    MOST,
    Between,
    Both,
    Calculation,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Minus,
    Name,
    Node,
    Not,
    truth,
)

if TYPE_CHECKING:
    import shmbroker

OFTEN = settings(
    max_examples=300,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)

# Few names and few values, so that conditions are true as often as false.
NAMES = ("a", "b.c", "d-e", "priority", 'q"u', "é", "not")
integers = st.sampled_from([0, 1, 2, 7, -1, 2**31, 2**53 + 1, MOST, LEAST]) | st.integers(-3, 3)
doubles = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.5, 1e300, 5e-324, float(2**53), float(2**63)])
texts = st.text(alphabet="ab%_é€\U0001f600'\"\n", max_size=4)
headers = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(
        integers,
        doubles,
        st.sampled_from([float("nan"), float("inf"), float("-inf")]),
        texts,
        st.booleans(),
        st.sampled_from(
            [None, b"a", ["a"], {"a": 1}, Decimal("1.5"), Decimal(7), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
        ),
    ),
    max_size=5,
)

names = st.sampled_from(NAMES).map(Name)
of_number = names | (integers | doubles).map(Literal)
signed = names | of_number.filter(lambda of: of != Literal(LEAST))  # its opposite is out of range
numbers: st.SearchStrategy[Node] = st.recursive(
    of_number,
    lambda inner: st.builds(Calculation, st.sampled_from("+-*/"), inner, inner) | st.builds(Minus, signed),
    max_leaves=4,
)
of_text: st.SearchStrategy[Node] = names | texts.map(Literal)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
equal = st.sampled_from(["=", "<>"])
parts = st.lists(st.sampled_from([None, ...]) | texts, max_size=4).map(tuple)
predicates: st.SearchStrategy[Node] = st.one_of(
    names,
    st.booleans().map(Literal),
    st.builds(Comparison, signs, numbers, numbers),
    st.builds(Comparison, signs, of_text, of_text),
    st.builds(Comparison, equal, names, st.booleans().map(Literal)),
    st.builds(Between, numbers, numbers, numbers, st.booleans()),
    st.builds(Between, of_text, of_text, of_text, st.booleans()),
    st.builds(
        In, names, st.lists((integers | doubles | texts).map(Literal), min_size=1, max_size=3).map(tuple), st.booleans()
    ),
    st.builds(Like, of_text, parts, st.sampled_from("!aé"), st.booleans()),
    st.builds(IsNull, names | numbers, st.booleans()),
)
conditions: st.SearchStrategy[Node] = st.recursive(
    predicates,
    lambda inner: st.builds(Not, inner) | st.builds(Both, inner, inner, st.booleans()),
    max_leaves=6,
)


@OFTEN
@given(condition=conditions, messages=st.lists(headers, min_size=1, max_size=4))
def test_a_selector_selects_what_it_says(
    queue: shmbroker.Queue, condition: Node, messages: list[dict[str, Any]]
) -> None:
    """Browsing and counting select the messages for which the tree of the selector is true."""
    queue.purge()
    for number, one in enumerate(messages):
        queue.put(str(number).encode(), headers=one)
    expected = [number for number, one in enumerate(messages) if truth(condition.value(one)) is True]
    event(f"{len(expected)} of {len(messages)}")
    text = condition.text()
    assert [int(bytes(message)) for message in queue.browse(text)] == expected
    assert queue.count(selector=text) == len(expected)


@OFTEN
@given(messages=st.lists(headers, max_size=6), name=st.sampled_from(NAMES))
def test_a_count_by_a_header_counts_each_value(
    queue: shmbroker.Queue, messages: list[dict[str, Any]], name: str
) -> None:
    """The groups are those of a count over the headers as Python decodes them; lists and tables count as None."""
    queue.purge()
    for one in messages:
        queue.put(b"", headers=one)
    found = queue.count(group_by=Name(name).text())
    values = [message.headers.get(name) for message in queue.browse()]
    plain = [
        None
        if isinstance(value, (list, dict))
        else float(value)
        if isinstance(value, Decimal)
        else int(value.timestamp())
        if isinstance(value, dt.datetime)
        else value
        for value in values
    ]
    expected = Counter(map(repr, plain))
    assert sum(found.values()) == len(messages)
    if len({repr(value) for value in plain}) == len({value for value in plain if value == value}):  # noqa: PLR0124 - no NaN
        assert Counter({repr(value): times for value, times in found.items()}) == expected
    assert list(found.values()) == sorted(found.values(), reverse=True)
