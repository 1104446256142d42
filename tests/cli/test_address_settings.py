# SPDX-License-Identifier: Apache-2.0
"""`shmbroker settings ...`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from shmbroker.address_settings import ADDRESS_ROWS
from shmbroker_cli import address_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


@pytest.fixture
def settings(broker: shmbroker.Broker) -> Any:  # noqa: ANN401
    """Read what the broker has: the settings by match."""

    def read() -> dict[str, dict[str, Any]]:
        with broker.connect() as connection:
            return dict(connection.settings.list())

    return read


def test_set_gives_settings_to_a_match(cli: Callable[..., Any], settings: Callable[[], Any]) -> None:
    """Options are those of queues, with `default`; the settings that the match had stay."""
    first = cli("settings", "set", "orders.#", "--default-ring-size", "5", "--default-max-bytes", "2K")
    assert (first.code, first.out) == (0, "orders.#: 2 settings set\n")
    second = cli("settings", "set", "orders.#", "--auto-create-queues", "--default-message-ttl", "0.5", "--json")
    assert second.facts == {"match": "orders.#", "settings": settings()["orders.#"]}
    assert settings() == {
        "orders.#": {
            "default_ring_size": 5,
            "default_max_bytes": 2048,
            "auto_create_queues": True,
            "default_message_ttl": 0.5,
        }
    }


def test_a_switch_can_be_off_and_a_time_without_limit(cli: Callable[..., Any], settings: Callable[[], Any]) -> None:
    """`--no-` turns a switch off, and -1 is no limit: both decide against less specific matches."""
    options = ("--no-auto-delete-queues", "--default-message-ttl", "-1", "--no-default-durable")
    assert cli("settings", "set", "a", *options).code == 0
    assert settings() == {"a": {"auto_delete_queues": False, "default_message_ttl": None, "default_durable": False}}


def test_every_setting_has_an_option() -> None:
    """`set` has an option for each row."""
    parameters = inspect.signature(address_settings.set_settings).parameters
    assert list(parameters) == ["match", *ADDRESS_ROWS, "broker", "as_json"]


@pytest.mark.usefixtures("broker")
def test_list_shows_each_setting_of_each_match(cli: Callable[..., Any]) -> None:
    """The more specific match comes first; times are shown to the millisecond."""
    assert cli("settings", "list").out == "no address settings\n"
    cli("settings", "set", "#", "--default-redelivery-delay", "0.05")
    cli("settings", "set", "a.b", "--default-ring-size", "7", "--default-expires", "-1")
    lines = [line.split() for line in cli("settings", "list").lines[2:]]
    assert lines == [
        ["a.b", "default_expires", "none"],
        ["a.b", "default_ring_size", "7"],
        ["#", "default_redelivery_delay", "0.05"],
    ]
    assert cli("settings", "list", "--json").facts == [
        {"match": "a.b", "settings": {"default_ring_size": 7, "default_expires": None}},
        {"match": "#", "settings": {"default_redelivery_delay": 0.05}},
    ]


@pytest.mark.usefixtures("broker")
def test_explain_shows_each_value_and_its_match(cli: Callable[..., Any]) -> None:
    """A line for each setting: its value, the match that gives it, and which queues it concerns."""
    cli("settings", "set", "a.#", "--default-ring-size", "7", "--default-max-length", "8")
    cli("settings", "set", "a.b", "--default-ring-size", "9")
    lines = [line.split() for line in cli("settings", "explain", "a.b").lines]
    assert lines[0] == ["setting", "value", "match", "applies", "to"]
    assert [line[0] for line in lines[2:]] == list(ADDRESS_ROWS)
    assert ["default_ring_size", "9", "a.b", "new", "queues"] in lines
    assert ["default_max_length", "8", "a.#", "all"] in lines
    assert ["auto_create_queues", "False", "(default)", "all"] in lines
    facts = cli("settings", "explain", "a.b", "--json").facts
    assert facts["address"] == "a.b"
    assert facts["settings"]["default_ring_size"] == {"value": 9, "match": "a.b"}
    assert facts["settings"]["default_expires"] == {"value": None, "match": None}


def test_remove_takes_all_or_some(cli: Callable[..., Any], settings: Callable[[], Any]) -> None:
    """With names only these settings of the match are removed."""
    cli("settings", "set", "a", "--default-ring-size", "7", "--default-max-length", "8")
    some = cli("settings", "remove", "a", "default_ring_size", "--json")
    assert some.facts == {"match": "a", "removed": ["default_ring_size"]}
    assert settings() == {"a": {"default_max_length": 8}}
    assert cli("settings", "remove", "a").out == "a: removed\n"
    assert settings() == {}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("set", "x.#.y", "--default-ring-size", "5"), 2, "match='x.#.y': '#' is allowed as the last word only"),
        (("set", "a*", "--default-ring-size", "5"), 2, "a wildcard is a whole word"),
        (("set", "a", "--default-ring-size", "0"), 2, "default_ring_size=0: -1 (no limit) or an integer from 1"),
        (("set", "a", "--default-overflow", "spill"), 2, "default_overflow='spill': one of block, drop, drop-head"),
        (("set", "a"), 2, "give at least one setting"),
        (("set", "a", "--ring-size", "5"), 2, "--ring-size"),
        (("remove", "a"), 1, "no address settings for match 'a'"),
        (("remove", "a", "ring_size"), 2, "no address setting 'ring_size'; there are default_ring_size,"),
        (("explain", ""), 2, "queue name ''"),
    ],
)
@pytest.mark.usefixtures("broker")
def test_bad_input_is_one_line_and_a_code(
    cli: Callable[..., Any], settings: Callable[[], Any], arguments: tuple[str, ...], code: int, text: str
) -> None:
    """Wrong arguments are usage (2), what the broker refuses is 1; the line names what was given and is allowed."""
    found = cli("settings", *arguments)
    assert (found.code, found.out) == (code, "")
    assert text in found.err
    assert found.err.count("\n") == 1
    assert settings() == {}
