# SPDX-License-Identifier: Apache-2.0
"""Queue settings, one row for each setting.

A row determines the keyword, the ``x-`` argument and the command-line option of its setting, its place in shared
memory, and its text in the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shmbroker import exceptions
from shmbroker._amqp import arguments as amqp
from shmbroker._amqp.errors import amqp_error
from shmbroker._dataclasses import dataclass
from shmbroker._setting_kinds import (
    UNBOUNDED,
    Choice,
    Consumers,
    Count,
    Factor,
    Kind,
    Level,
    Limit,
    Name,
    Seats,
    Seconds,
    Size,
    Switch,
    Whole,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = (
    "ROWS",
    "UNBOUNDED",
    "QueueSettings",
    "Row",
    "from_arguments",
    "inequivalent",
    "parse_size",
    "validate",
)

_Value = TypeVar("_Value")
_rows: list[Row] = []


class Row(NamedTuple):
    """The properties of a setting besides its name and its default.

    Attributes:
        kind: the values that the setting can have.
        help: the effect of the setting, in one clause, for the command line and the reference.
        core: the name of the C constant of the setting: the index of the number, or the flag, that the core stores.
            `None` = the core stores a string (kind `Name` of `_setting_kinds`), and has no constant for it; no setting
            is such a string yet.
        argument: the ``x-`` argument of ``queue_declare``; `None` = ``queue_declare`` has a parameter named like it.
        fixed: whether the value cannot change after the declaration. True for every setting that the core stores as a
            string.
        option: whether the command line has an option for it.
        copied: whether address settings determine the value when the queue is made, and never later, although
            ``configure`` can change it.
    """

    kind: Kind
    help: str
    core: str | None = None
    argument: str | None = None
    fixed: bool = False
    option: bool = True
    copied: bool = False

    @property
    def is_live(self) -> bool:
        """Whether a change of address settings changes the value of queues that exist."""
        return not self.fixed and not self.copied

    @property
    def is_number(self) -> bool:
        """Whether the core stores a number for it."""
        return self.core is not None and self.core.startswith("SB_SETTING_")

    @property
    def is_flag(self) -> bool:
        """Whether the core stores a flag for it."""
        return self.core is not None and not self.is_number


def _setting(default: _Value, kind: Kind, help: str, core: str | None = None, **more: Any) -> _Value:  # noqa: A002, ANN401
    """Notes the row of the next field of `QueueSettings`, and returns its default."""
    _rows.append(Row(kind, help, core, **more))
    return default


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue, as :attr:`Queue.settings` returns them. The reference has a table of their meanings."""

    ring_size: int = _setting(
        UNBOUNDED,
        Count(),
        "keep this number of ready messages, the newest; -1: all",
        "SB_SETTING_RING_SIZE",
        argument="x-ring-size",
        copied=True,
    )
    max_length: int = _setting(
        UNBOUNDED,
        Limit(),
        "the most ready messages; 0: only as many as the consumers take that wait; -1: no limit",
        "SB_SETTING_MAX_LENGTH",
        argument="x-max-length",
    )
    max_bytes: int = _setting(
        UNBOUNDED,
        Size(),
        "the most bytes of ready bodies; 0: only bodies that the consumers take that wait; -1: no limit",
        "SB_SETTING_MAX_BYTES",
        argument="x-max-length-bytes",
    )
    overflow: str = _setting(
        "block",
        Choice("block", "drop", "drop-head", "reject-publish", "reject-publish-dlx", "page"),
        "what a publish does beyond max_length or max_bytes; page: no limit, messages leave the memory for the store",
        "SB_SETTING_OVERFLOW",
        argument="x-overflow",
        copied=True,
    )
    resume_at: int = _setting(
        100,
        Whole(1, 100),
        "when a queue that blocks was full, producers wait until it holds at most this percentage of max_length and "
        "max_bytes; 100: until there is room",
        "SB_SETTING_RESUME_AT",
        argument="x-resume-at",
    )
    message_ttl: float | None = _setting(
        None,
        Seconds(least_ms=0),
        "the longest life of a message, in seconds, also of one with a longer ttl of its own; -1: for ever",
        "SB_SETTING_MESSAGE_TTL_MS",
        argument="x-message-ttl",
    )
    expiry_delay: float | None = _setting(
        None,
        Seconds(least_ms=1),
        "the life of a message that is put without a ttl, in seconds; -1: for ever",
        "SB_SETTING_EXPIRY_DELAY_MS",
        argument="x-expiry-delay",
    )
    min_expiry_delay: float | None = _setting(
        None,
        Seconds(least_ms=1),
        "the shortest life of a message that is put with a ttl, or gets one by expiry_delay, in seconds; -1: any",
        "SB_SETTING_MIN_EXPIRY_DELAY_MS",
        argument="x-min-expiry-delay",
    )
    max_expiry_delay: float | None = _setting(
        None,
        Seconds(least_ms=1),
        "the longest life of a message that is put, also without a ttl, in seconds; -1: for ever",
        "SB_SETTING_MAX_EXPIRY_DELAY_MS",
        argument="x-max-expiry-delay",
    )
    no_expiry: bool = _setting(
        default=False,
        kind=Switch(),
        help="messages that are put live for ever, whatever their ttl and the other settings say",
        core="SB_QUEUE_NO_EXPIRY",
        argument="x-no-expiry",
    )
    expires: float | None = _setting(
        None,
        Seconds(least_ms=1),
        "delete the queue when it was unused for this number of seconds: no consumer, declaration or get; -1: never",
        "SB_SETTING_EXPIRES_MS",
        argument="x-expires",
    )
    max_priority: int = _setting(
        0,
        Level(),
        "the highest priority of a message; 0: the queue has no priorities, and delivers its messages in their order",
        "SB_SETTING_MAX_PRIORITY",
        argument="x-max-priority",
        fixed=True,
    )
    dead_letter_exchange: str | None = _setting(
        None,
        Name(empty=True),
        "the exchange that gets each message that the queue rejects, lets expire, evicts or delivers too often; "
        "it need not exist",
        argument="x-dead-letter-exchange",
        fixed=True,
    )
    dead_letter_routing_key: str | None = _setting(
        None,
        Name(empty=True),
        "the routing key of such a message; without it, the message keeps its own",
        argument="x-dead-letter-routing-key",
        fixed=True,
    )
    expiry_exchange: str | None = _setting(
        None,
        Name(empty=True),
        "the exchange that gets each message that expires, instead of dead_letter_exchange; it need not exist",
        argument="x-expiry-exchange",
        fixed=True,
    )
    expiry_routing_key: str | None = _setting(
        None,
        Name(empty=True),
        "the routing key of such a message; without it, the message keeps its own",
        argument="x-expiry-routing-key",
        fixed=True,
    )
    drop_expired: bool = _setting(
        default=False,
        kind=Switch(),
        help="messages that expire end, and go to no exchange",
        core="SB_QUEUE_DROPS_EXPIRED",
        argument="x-drop-expired",
        copied=True,
    )
    max_delivery_attempts: int = _setting(
        UNBOUNDED,
        Count(),
        "the most deliveries of a message that is returned, or whose consumers die; -1: no limit",
        "SB_SETTING_MAX_DELIVERY_ATTEMPTS",
        argument="x-delivery-limit",
    )
    redelivery_delay: float | None = _setting(
        0.0,
        Seconds(least_ms=0),
        "how long a message that is returned waits before it is ready again, in seconds",
        "SB_SETTING_REDELIVERY_DELAY_MS",
        argument="x-redelivery-delay",
    )
    redelivery_multiplier: float = _setting(
        1.0,
        Factor(1, 1000),
        "each further return of a message waits longer by this factor",
        "SB_SETTING_REDELIVERY_MULTIPLIER",
        argument="x-redelivery-multiplier",
    )
    max_redelivery_delay: float | None = _setting(
        None,
        Seconds(least_ms=1),
        "the longest such wait, in seconds; -1: no limit",
        "SB_SETTING_MAX_REDELIVERY_DELAY_MS",
        argument="x-max-redelivery-delay",
    )
    redelivery_collision_factor: float = _setting(
        0.0,
        Factor(0, 1),
        "each wait is longer or shorter by chance, by up to this part of it, so that messages that were returned "
        "together do not come again together",
        "SB_SETTING_REDELIVERY_COLLISION",
        argument="x-redelivery-collision-factor",
    )
    message_groups: str = _setting(
        "none",
        Choice("none", "sticky", "shared"),
        "a message group goes to one consumer at a time; sticky: until the consumer leaves; shared: until it has "
        "settled the messages that it got of the group",
        "SB_SETTING_MESSAGE_GROUPS",
        argument="x-message-groups",
        fixed=True,
    )
    group_buckets: int = _setting(
        255,
        Whole(1, 256),
        "message groups are spread over this number of buckets; groups of one bucket go to the same consumer",
        "SB_SETTING_GROUP_BUCKETS",
        argument="x-group-buckets",
        fixed=True,
    )
    last_value_key: str | None = _setting(
        None,
        Name(),
        "the name of a header: of the ready messages with one value of it only the newest stays, and replaces the "
        "others",
        argument="x-last-value-key",
        fixed=True,
    )
    sort_key: str | None = _setting(
        None,
        Name(),
        "the name of a header: messages are delivered in ascending order of its value; those without it come first",
        argument="x-sort-key",
        fixed=True,
    )
    max_consumers: int = _setting(
        UNBOUNDED,
        Seats(),
        "the most consumers; another one is refused; 0: none are admitted; -1: no limit",
        "SB_SETTING_SEATS",
        argument="x-max-consumers",
        copied=True,
    )
    consumers_before_dispatch: int = _setting(
        0,
        Consumers(),
        "consumers get no messages before this number of them is attached; then they do until all have left",
        "SB_SETTING_CONSUMERS_BEFORE_DISPATCH",
        argument="x-consumers-before-dispatch",
        copied=True,
    )
    delay_before_dispatch: float | None = _setting(
        0.0,
        Seconds(least_ms=0),
        "how long after the first consumer they get messages, in seconds, even if consumers_before_dispatch has not "
        "come; 0: there is no such time",
        "SB_SETTING_DELAY_BEFORE_DISPATCH_MS",
        argument="x-delay-before-dispatch",
        copied=True,
    )
    duplicate_ids: int = _setting(
        0,
        Whole(0, 100_000),
        "remember the duplicate ids of the last messages, of this number, and store no second message of such an id; "
        "0: none",
        "SB_SETTING_DUPLICATE_IDS",
        argument="x-duplicate-ids",
    )
    non_destructive: bool = _setting(
        default=False,
        kind=Switch(),
        help="an acknowledged message stays, so each consumer gets every message, from the oldest on; what ends "
        "messages is their expiry, a limit, last_value_key, or an administrator",
        core="SB_QUEUE_NON_DESTRUCTIVE",
        argument="x-non-destructive",
        fixed=True,
    )
    durable: bool = _setting(
        default=False,
        kind=Switch(),
        help="in a broker with a `data_dir`, queue and messages outlive the memory; declarations compare it",
        core="SB_QUEUE_DURABLE",
        fixed=True,
    )
    exclusive: bool = _setting(
        default=False,
        kind=Switch(),
        help="only the connection that declares the queue uses it, and the queue ends with that connection; other "
        "connections may publish to it",
        core="SB_QUEUE_EXCLUSIVE",
        fixed=True,
        option=False,
    )
    auto_delete: bool = _setting(
        default=False,
        kind=Switch(),
        help="the queue ends with its last consumer, if it ever had one",
        core="SB_QUEUE_AUTO_DELETE",
        fixed=True,
    )
    single_active_consumer: bool = _setting(
        default=False,
        kind=Switch(),
        help="one consumer gets all messages; when it is gone the next one takes over, by priority, then by age",
        core="SB_QUEUE_SINGLE_ACTIVE",
        argument="x-single-active-consumer",
        fixed=True,
    )


ROWS: Mapping[str, Row] = dict(zip(QueueSettings.__match_args__, _rows, strict=True))
"""The rows of the settings by their names."""

PAGING = "page"
"""The overflow of a queue whose messages leave the memory for the store, though they are not durable."""
DEAD_LETTERING = "reject-publish-dlx"
"""The overflow with which a queue sends the messages that it rejects to its dead-letter exchange."""
REJECTING = frozenset({"reject-publish", DEAD_LETTERING})
"""The values of ``overflow`` with which a full queue rejects a message, and its publisher learns of it."""

_SETTING_OF = {row.argument: name for name, row in ROWS.items() if row.argument is not None}


def validate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given settings, checked.

    Raises:
        TypeError: a name is not that of a setting.
        ValueError: a value is not allowed. The error's text names the setting, the value and what is allowed.
    """
    checked = {}
    for name, value in given.items():
        row = ROWS.get(name)
        if row is None:
            msg = f"no queue setting {name!r}; there are {', '.join(ROWS)}"
            raise TypeError(msg)
        checked[name] = row.kind.check(name, value)
    return checked


def from_arguments(queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that ``x-`` arguments request, checked. It ignores unknown arguments, as RabbitMQ does.

    Raises:
        PreconditionFailed: a value is not allowed.
    """
    given = {}
    for argument, value in arguments.items():
        setting = _SETTING_OF.get(argument)
        if setting is not None:
            given[setting] = ROWS[setting].kind.from_argument(queue, argument, value)
    if "dead_letter_routing_key" in given and "dead_letter_exchange" not in given:
        raise amqp.invalid(queue, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")
    if "expiry_routing_key" in given and "expiry_exchange" not in given:
        raise amqp.invalid(queue, "x-expiry-routing-key", "routing_key_but_no_exchange_defined")
    return given


def inequivalent(queue: str, setting: str, received: object, current: object) -> exceptions.PreconditionFailed:
    """Returns the error for a declaration that requests another value of the setting than the queue has."""
    row = ROWS[setting]
    text = (
        f"inequivalent arg '{row.argument or setting}' for queue '{queue}' in vhost '/': "
        f"received {row.kind.described(received)} but current is {row.kind.described(current)}"
    )
    return amqp_error(exceptions.PreconditionFailed, text)
