# SPDX-License-Identifier: Apache-2.0
"""Address settings, one row for each.

Most rows follow from the rows of the queue settings: ``default_ring_size`` is what queues have for ``ring_size`` if it
was not given for them. The other rows say when queues are made and deleted without a call to do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._setting_conflicts import check_given
from shmbroker._setting_kinds import Kind, Seconds, Switch
from shmbroker.settings import ROWS, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "default_"
AUTO_CREATE = "auto_create_queues"
AUTO_DELETE = "auto_delete_queues"
AUTO_DELETE_DELAY = "auto_delete_queues_delay"
AUTO_DELETE_UNUSED = "auto_delete_queues_skip_usage_check"
_DEFAULTS = QueueSettings()
_OF_A_DECLARATION = {"exclusive"}  # it names the connection that declares the queue, so it cannot have a default


class AddressRow(NamedTuple):
    """The properties of an address setting besides its name.

    Attributes:
        kind: the values that the setting can have.
        default: the value for addresses that no match gives one.
        help: the effect of the setting, in one clause, for the command line and the reference.
        is_live: whether a change also concerns the queues that exist; otherwise only queues that are made later.
        queue_setting: the setting of a queue that this one is the default of; `None`: it is not such a default.
    """

    kind: Kind
    default: Any
    help: str
    is_live: bool = True
    queue_setting: str | None = None


ADDRESS_ROWS: Mapping[str, AddressRow] = {
    **{
        f"{PREFIX}{name}": AddressRow(row.kind, getattr(_DEFAULTS, name), row.help, row.is_live, name)
        for name, row in ROWS.items()
        if name not in _OF_A_DECLARATION
    },
    AUTO_CREATE: AddressRow(
        Switch(), default=False, help="a publish or a consume makes the queue that it names, if there is none"
    ),
    AUTO_DELETE: AddressRow(
        Switch(),
        default=True,
        help="the housekeeper deletes such a queue when it was used, and has no consumer, no message and no binding",
    ),
    AUTO_DELETE_DELAY: AddressRow(
        Seconds(least_ms=0), default=0.0, help="how long the queue must have been so before, in seconds; -1: for ever"
    ),
    AUTO_DELETE_UNUSED: AddressRow(
        Switch(),
        default=False,
        help="the housekeeper also deletes such a queue if it never had a message or a consumer",
    ),
}
"""The rows of the address settings by their names."""


def check_names(names: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Checks names of address settings.

    Raises:
        TypeError: a name is not that of an address setting. The error's text has the names that there are.
    """
    for name in names:
        if name not in ADDRESS_ROWS:
            hint = f"; did you mean {PREFIX}{name}?" if f"{PREFIX}{name}" in ADDRESS_ROWS else ""
            msg = f"no address setting {name!r}{hint}; there are {', '.join(ADDRESS_ROWS)}"
            raise TypeError(msg)


def validate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given address settings, checked.

    Raises:
        TypeError: a name is not that of an address setting.
        ValueError: a value is not allowed. The error's text names the setting, the value and what is allowed.
    """
    check_names(given)
    return {name: ADDRESS_ROWS[name].kind.check(name, value) for name, value in given.items()}


def check_together(match: str, settings: Mapping[str, Any]) -> None:
    """Checks what one match gives. Which values of several matches meet is known when a queue is made.

    Raises:
        ValueError: two values do not go together. The error's text names the match, the settings and the values.
    """
    of_queues = {ADDRESS_ROWS[name].queue_setting: value for name, value in settings.items()}
    try:
        check_given({name: value for name, value in of_queues.items() if name is not None})
    except ValueError as error:
        msg = f"match={match!r}: {error}"
        raise ValueError(msg) from None
