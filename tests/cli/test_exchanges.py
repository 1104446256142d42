# SPDX-License-Identifier: Apache-2.0
"""`shmbroker exchange ...`, `bind`, `unbind` and `bindings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

PREDECLARED = ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]


@pytest.fixture
def events(broker: shmbroker.Broker) -> str:
    """Make a topic exchange, another exchange and a queue."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("events", "topic")
        channel.exchange_declare("audit", "fanout")
        connection.queue("jobs")
    return "events"


def bound(broker: shmbroker.Broker) -> list[shmbroker.BindingInfo]:
    """Return all bindings of a broker."""
    with broker.connect() as connection:
        return connection.bindings()


def names(cli: Callable[..., Any]) -> list[str]:
    """Return the exchanges that not every broker has."""
    return [one["name"] for one in cli("exchange", "list", "--json").facts if one["name"] not in PREDECLARED]


def test_create_makes_an_exchange(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """What was given is what the exchange has; what was not given is the default."""
    ran = cli("exchange", "create", "plain")
    assert (ran.code, ran.lines) == (0, ["plain: created"])
    options = ("--type", "topic", "--durable", "--auto-delete", "--internal", "--alternate", "lost")
    made = cli("exchange", "create", "full", *options, "--json").facts
    assert made == {
        "exchange": "full", "type": "topic", "durable": True, "auto_delete": True, "internal": True,
        "alternate": "lost",
    }  # fmt: skip
    with broker.connect() as connection:
        full, plain = (one for one in connection.exchanges() if one.name in {"full", "plain"})
    assert (full.type, full.durable, full.auto_delete, full.internal, full.alternate) == (
        "topic",
        True,
        True,
        True,
        "lost",
    )
    assert (plain.type, plain.durable, plain.auto_delete, plain.internal, plain.alternate) == (
        *("direct", False, False, False),
        None,
    )


@pytest.mark.usefixtures("events")
def test_create_again_is_done_if_it_is_the_same(cli: Callable[..., Any]) -> None:
    """Else it is refused, and the line names what differs."""
    assert "existed" in cli("exchange", "create", "events", "--type", "topic").out
    assert cli("exchange", "create", "events").is_refused("type", "events")
    assert cli("exchange", "create", "events", "--type", "topic", "--durable").is_refused("durable")


@pytest.mark.parametrize(
    ("arguments", "word"), [(("",), "default exchange"), (("amq.mine",), "reserved"), (("x" * 256,), "255")]
)
@pytest.mark.usefixtures("broker")
def test_create_with_a_name_that_cannot_be(cli: Callable[..., Any], arguments: tuple[str, ...], word: str) -> None:
    """It is refused; one that no broker could take is wrong usage."""
    assert cli("exchange", "create", *arguments).is_refused(word, code=2 if word == "255" else 1)
    assert names(cli) == []


@pytest.mark.usefixtures("broker")
def test_create_with_an_unknown_type_is_wrong_usage(cli: Callable[..., Any]) -> None:
    """The line says what there is."""
    assert cli("exchange", "create", "x", "--type", "magic").is_refused("magic", "headers", code=2)
    assert names(cli) == []


def test_list_shows_all_exchanges(cli: Callable[..., Any], events: str, broker: shmbroker.Broker) -> None:
    """Those of every broker too; the default one has no name to show."""
    with broker.connect() as connection:
        connection.channel().exchange_bind("audit", events, "#")
    facts = cli("exchange", "list", "--json").facts
    assert [one["name"] for one in facts] == sorted([*PREDECLARED, "audit", "events"])
    assert {
        one["name"]: (one["bindings_in"], one["bindings_out"]) for one in facts if one["name"] in {"audit", "events"}
    } == {
        "audit": (1, 0),
        "events": (0, 1),
    }
    lines = [line.split() for line in cli("exchange", "list").lines[2:]]
    assert lines[0] == ["(default)", "direct", "0", "0", "-", "durable"]
    assert ["events", "topic", "0", "1", "-"] in lines


@pytest.mark.usefixtures("events")
def test_delete_removes_the_exchange(cli: Callable[..., Any]) -> None:
    """With its bindings; one that does not exist is refused."""
    assert cli("bind", "events", "jobs").code == 0
    assert cli("exchange", "delete", "events", "--if-unused").is_refused("in use")
    assert cli("exchange", "delete", "events").lines == ["events: deleted"]
    assert cli("exchange", "delete", "audit", "--if-unused", "--json").facts == {"exchange": "audit", "deleted": True}
    assert names(cli) == []
    assert cli("bindings", "--json").facts == []
    assert cli("exchange", "delete", "events").is_refused("no exchange 'events'")


@pytest.mark.parametrize("name", ["", "amq.topic"])
@pytest.mark.usefixtures("broker")
def test_delete_leaves_what_every_broker_has(cli: Callable[..., Any], name: str) -> None:
    """It is refused."""
    assert cli("exchange", "delete", name).is_refused("ACCESS_REFUSED")


def test_bind_leads_to_a_queue_or_an_exchange(cli: Callable[..., Any], events: str, broker: shmbroker.Broker) -> None:
    """With a key; without one the key is empty."""
    assert cli("bind", events, "jobs", "--key", "a.*").lines == ["events -> jobs: bound"]
    assert cli("bind", events, "jobs").code == 0
    assert cli("bind", events, "audit", "--exchange", "--key", "#", "--json").facts == {
        "source": "events", "destination": "audit", "destination_type": "exchange", "routing_key": "#", "arguments": {},
    }  # fmt: skip
    assert [(one.destination, one.destination_type, one.routing_key) for one in bound(broker)] == [
        ("jobs", "queue", "a.*"),
        ("jobs", "queue", ""),
        ("audit", "exchange", "#"),
    ]


def test_bind_again_changes_nothing(cli: Callable[..., Any], events: str, broker: shmbroker.Broker) -> None:
    """It says that there was such a binding."""
    assert cli("bind", events, "jobs", "--argument", "n=1").code == 0
    assert "existed" in cli("bind", events, "jobs", "--argument", "n=1").out
    assert "existed" not in cli("bind", events, "jobs", "--argument", "n=true").out
    assert len(bound(broker)) == 2


def test_arguments_are_json_or_text(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Numbers, truths and tables keep their types; whatever is no JSON is text, and so are NaN and 1e999."""
    with broker.connect() as connection:
        connection.queue("jobs")
    given = {
        "x-match": "any", "n": "7", "half": "0.5", "yes": "true", "none": "null", "quoted": '"7"', "nan": "NaN",
        "table": '{"a": [1]}', "equals": "a=b", "much": "1e999",
    }  # fmt: skip
    options = [word for name, value in given.items() for word in ("--argument", f"{name}={value}")]
    assert cli("bind", "amq.headers", "jobs", *options).code == 0
    (one,) = bound(broker)
    assert one.arguments == {
        "x-match": "any", "n": 7, "half": 0.5, "yes": True, "none": None, "quoted": "7", "nan": "NaN",
        "table": {"a": [1]}, "equals": "a=b", "much": "1e999",
    }  # fmt: skip
    assert cli("unbind", "amq.headers", "jobs", *options).code == 0
    assert bound(broker) == []


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (("x-match",), "NAME=VALUE"),
        (("=any",), "NAME=VALUE"),
        (("a=1", "--argument", "a=2"), "twice"),
        (("a=" + "9" * 100,), "999"),
        (("a" * 129 + "=1",), "128"),
    ],
)
def test_an_argument_that_cannot_be_is_wrong_usage(
    cli: Callable[..., Any], broker: shmbroker.Broker, given: tuple[str, ...], word: str
) -> None:
    """And nothing is bound."""
    with broker.connect() as connection:
        connection.queue("jobs")
    assert cli("bind", "amq.headers", "jobs", "--argument", *given).is_refused(word, code=2)
    assert bound(broker) == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nowhere", "jobs"), "no exchange 'nowhere'"),
        (("events", "nowhere"), "no queue 'nowhere'"),
        (("events", "nowhere", "--exchange"), "no exchange 'nowhere'"),
        (("", "jobs"), "default exchange"),
        (("events", "jobs", "--key", "#.#.#"), "wildcards"),
        (("amq.headers", "jobs", "--argument", "x-match=some"), "x-match"),
    ],
)
@pytest.mark.usefixtures("events")
def test_a_binding_that_cannot_be_is_refused(
    cli: Callable[..., Any], broker: shmbroker.Broker, arguments: tuple[str, ...], word: str
) -> None:
    """One line says why."""
    assert cli("bind", *arguments).is_refused(word)
    assert bound(broker) == []


def test_unbind_removes_that_binding_only(cli: Callable[..., Any], events: str, broker: shmbroker.Broker) -> None:
    """All of it must be given; one that does not exist is refused."""
    for options in ((), ("--key", "a"), ("--argument", "n=1")):
        assert cli("bind", events, "jobs", *options).code == 0
    assert cli("bind", events, "audit", "--exchange").code == 0
    assert cli("unbind", events, "jobs").lines == ["events -> jobs: unbound"]
    assert cli("unbind", events, "jobs").is_refused("no binding from")
    missing = "no binding from 'events' to queue 'jobs' has key 'z' and arguments {\"n\": true}"
    assert cli("unbind", events, "jobs", "--key", "z", "--argument", "n=true").is_refused(missing)
    assert cli("unbind", events, "audit", "--exchange", "--json").facts["destination_type"] == "exchange"
    assert [(one.routing_key, one.arguments) for one in bound(broker)] == [("a", {}), ("", {"n": 1})]
    assert cli("unbind", "nowhere", "jobs").is_refused("no exchange 'nowhere'")
    assert cli("unbind", events, "nowhere").is_refused("no binding from")
    assert cli("unbind", events, "jobs", "--argument", "n").is_refused("NAME=VALUE", code=2)
    assert cli("unbind", events, "jobs", "--argument", "n=" + "9" * 100).is_refused("no binding from")


def test_bindings_of_all_or_of_one_exchange(cli: Callable[..., Any], events: str) -> None:
    """The table shows arguments as they would be given."""
    assert cli("bindings").lines == ["no bindings"]
    cli("bind", events, "jobs", "--key", "k", "--argument", "n=1", "--argument", "t=x")
    cli("bind", events, "audit", "--exchange")
    cli("bind", "amq.fanout", "jobs")
    assert [line.split() for line in cli("bindings").lines[2:]] == [
        ["amq.fanout", "jobs", "queue"],
        ["events", "jobs", "queue", "k", "n=1", "t=x"],
        ["events", "audit", "exchange"],
    ]
    (one,) = cli("bindings", "audit", "--json").facts
    assert (one["source"], one["destination"]) == ("events", "audit")
    assert cli("bindings", "nowhere").is_refused("no exchange 'nowhere'")


def test_arguments_that_only_programs_give_can_be_shown(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Bytes, decimals and times as text."""
    from datetime import UTC, datetime  # noqa: PLC0415
    from decimal import Decimal  # noqa: PLC0415

    arguments = {"b": b"\xff", "d": Decimal("1.5"), "t": datetime(2026, 1, 2, tzinfo=UTC)}
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.headers", "", arguments)
    (one,) = cli("bindings", "--json").facts
    assert one["arguments"] == {"b": "\\xff", "d": "1.5", "t": "2026-01-02 00:00:00+00:00"}
    assert "2026-01-02" in cli("bindings").out


def test_arguments_of_other_types_are_other_bindings(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """A decimal of a program is not the float that is equal to it; the order of arguments does not matter."""
    from decimal import Decimal  # noqa: PLC0415

    with broker.connect() as connection:
        connection.queue("jobs")
        connection.channel().queue_bind("jobs", "amq.headers", "", {"n": Decimal("1.5")})
    ran = cli("bind", "amq.headers", "jobs", "--argument", "n=1.5")
    assert (ran.code, ran.lines) == (0, ["amq.headers -> jobs: bound"])
    assert len(bound(broker)) == 2
    assert cli("bind", "amq.headers", "jobs", "--argument", "a=1", "--argument", "b=2").lines[0].endswith(": bound")
    ran = cli("bind", "amq.headers", "jobs", "--argument", "b=2", "--argument", "a=1")
    assert ran.lines == ["amq.headers -> jobs: existed already"]


def test_arguments_are_shown_as_they_are_given(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Truths and tables as JSON, text as it is."""
    with broker.connect() as connection:
        connection.queue("jobs")
    given = ("t=x", "yes=true", 'deep={"a": [null]}')
    cli("bind", "amq.headers", "jobs", *(word for one in given for word in ("--argument", one)))
    (line,) = cli("bindings").lines[2:]
    assert line.split(maxsplit=3) == ["amq.headers", "jobs", "queue", " ".join(given)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("5", '"5"'), ("1.5", '"1.5"'), ("true", '"true"'), ("null", '"null"'), ("[1]", '"[1]"'), (" 5", '" 5"'),
        ('"5"', '"\\"5\\""'), ("two\nlines", '"two\\nlines"'), ("", ""), ("NaN", "NaN"), ("1e999", "1e999"),
        ("a=é", "a=é"), ("[" * 50_000, "[" * 50_000),
    ],
    ids=lambda one: one[:9],
)  # fmt: skip
def test_a_shown_text_can_be_given_back(
    cli: Callable[..., Any], broker: shmbroker.Broker, text: str, shown: str
) -> None:
    """A text of a program that would be read as another value is shown as JSON; `unbind` takes what is shown."""
    with broker.connect() as connection:
        connection.queue("jobs")
        connection.channel().queue_bind("jobs", "amq.headers", "", {"x": text})
    given = "".join(line.rpartition("x=")[2].strip() for line in cli("bindings").lines[2:])  # a long text is folded
    assert given == shown
    assert cli("unbind", "amq.headers", "jobs", "--argument", f"x={given}").code == 0
    assert bound(broker) == []


def test_an_alternate_is_shown_and_a_dash_for_none(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Below the heading, as all names are."""

    def shown() -> dict[str, str]:
        heading, _, *lines = cli("exchange", "list").lines
        return {line.split()[0]: line[heading.index("alternate") :].split(" ")[0] for line in lines}

    assert {*shown().values()} == {"-"}
    with broker.connect() as connection:
        connection.channel().exchange_declare("events", arguments={"alternate-exchange": "lost"})
    assert {name: other for name, other in shown().items() if other != "-"} == {"events": "lost"}
