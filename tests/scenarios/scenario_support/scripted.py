# SPDX-License-Identifier: Apache-2.0
"""The calls of the core, one of which gives answers of a script: statuses that only rare moments or damage bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Scripted:
    """In the place of the core's calls: one of them gives the answers of a script first, and then its own.

    Attributes:
        calls: The arguments of each call of that one.
    """

    def __init__(self, core: Any, name: str, *answers: Callable[..., object]) -> None:  # noqa: ANN401
        self._core, self._name, self._answers = core, name, list(answers)
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return self._call if name == self._name else getattr(self._core, name)

    def _call(self, *arguments: Any) -> object:  # noqa: ANN401
        self.calls.append(arguments)
        answer = self._answers.pop(0) if self._answers else getattr(self._core, self._name)
        return answer(*arguments)


def status(number: int) -> Callable[..., int]:
    """An answer: this status."""
    return lambda *_: number


def put_into(argument: int, number: int, result: object) -> Callable[..., object]:
    """An answer: this result, and this number where an argument points to."""

    def answer(*arguments: Any) -> object:  # noqa: ANN401
        arguments[argument][0] = number
        return result

    return answer
