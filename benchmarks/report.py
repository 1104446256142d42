# SPDX-License-Identifier: Apache-2.0
"""Results for people (tables, a plot) and for programs (JSON)."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from benchmarks.harness import FOREIGN_CORES, Kind, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.harness import Outcome, Result

NOTHING = "-"
LONGEST_REASON = 100
DISTURBING_CORES = 0.25
ERROR_BARS = {"elinewidth": 1, "ecolor": "black"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text in aligned columns, the first to the left.

    Args:
        header: Names of the columns.
        rows: As many cells each.

    >>> print(table(["name", "n"], [["a", "10"], ["bc", "2"]]))
    name   n
    a     10
    bc     2
    """
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _spread(result: Result, outcome: Outcome) -> list[str]:
    metric = result.measurement.metric
    summary = outcome.summary
    if summary is None:
        return [NOTHING] * (6 if metric.latency else 4)
    values = [summary.median, summary.min, summary.max, summary.mad]
    if metric.latency and summary.shape is not None:
        shape = summary.shape
        values = [shape.p50, shape.p99, shape.p999, shape.max, summary.min, summary.mad]
    return [metric.show(value) for value in values]


def targets(result: Result) -> list[str]:
    """Return a line for each target: what was asked, what was measured, and enough?

    Args:
        result: A finished measurement.
    """
    lines = []
    ran = [one for one in result.outcomes if one.status is not Status.NOT_RUN]
    for outcome in ran:
        for target in outcome.contender.targets:
            verdict = target.judge(result, outcome)
            if verdict.met is None and verdict.value is not None:  # nothing to reach
                lines.append(f"{outcome.name}: {verdict.text}: {verdict.value:,.3g}")
                continue
            value = "" if verdict.value is None else f"{verdict.value:,.3g}: "
            if verdict.worst is not None:
                value = f"{verdict.value:,.3g}, the worst run {verdict.worst:,.3g}: "
            lines.append(f"{outcome.name}: {verdict.text}: {value}{_word(verdict.met)}")
    return lines


def goals(results: Sequence[Result]) -> str:
    """Return a table of everything that was to be reached, with the verdict of each; empty if nothing was.

    Args:
        results: Finished measurements.
    """
    rows = []
    for result in results:
        for outcome in result.outcomes:
            for target in outcome.contender.targets if outcome.status is not Status.NOT_RUN else ():
                verdict = target.judge(result, outcome)
                if verdict.met is None:
                    continue
                row = f"{result.measurement.name}: {outcome.name}"
                rows.append([row, verdict.text, f"{verdict.value:,.3g}", _ratio(verdict.worst), _word(verdict.met)])
    return table(["row", "goal", "median", "worst run", "verdict"], rows) if rows else ""


def _word(met: bool | None) -> str:  # noqa: FBT001 (what a verdict says)
    return {True: "met", False: "MISSED", None: "not measured"}[met]


def main_table(result: Result) -> str:
    """Return the table of a measurement: spread and ratio to the best other.

    Args:
        result: A finished measurement.
    """
    metric = result.measurement.metric
    vs = "vs best" if result.measurement.baseline == "peers" else "vs first"
    spread = ["median", "min", "max", "MAD"]
    if metric.latency:
        spread = ["p50", "p99", "p99.9", "max", "p50 min", "p50 MAD"]
    header = [metric.name, *spread, vs]
    others = result.others()
    rows = []
    for outcome in result.outcomes:
        if outcome.status is Status.NOT_RUN:
            continue
        mark = " (spins)" if outcome.contender.waiting == "spinning" else ""
        against = result.against_best(outcome, others)
        rows.append([outcome.name + mark, *_spread(result, outcome), _ratio(against)])
    return table(header, rows)


def vs_table(result: Result) -> str:
    """Return the ratios of every contender to every peer; empty without peers.

    Args:
        result: A finished measurement.
    """
    others = [one for one in result.others() if one.contender.kind is Kind.PEER]
    if len(others) <= 1:
        return ""
    header = ["times better than", *[one.contender.short for one in others]]
    rows = [
        [outcome.name, *[_ratio(result.ratio(outcome, other)) for other in others]]
        for outcome in result.outcomes
        if outcome.median is not None
    ]
    return table(header, rows)


def problems(result: Result) -> list[str]:
    """Return a line for each thing that went wrong, and for what did not run.

    Args:
        result: A finished measurement.
    """
    idle: dict[str, list[str]] = {}
    lines = []
    for outcome in result.outcomes:
        if outcome.status is Status.NOT_RUN:
            reason = outcome.reason.splitlines()[0][:LONGEST_REASON]
            idle.setdefault(reason, []).append(outcome.name)
        elif outcome.status is not Status.OK:
            lines.append(f"{outcome.name}: {outcome.status}: {outcome.reason}")
    for reason, names in idle.items():
        lines.append(f"not run: {', '.join(names)}: {reason}")
    return lines + disturbances(result)


def disturbances(result: Result) -> list[str]:
    """Return a line for each contender that others took processor time from.

    Args:
        result: A finished measurement.
    """
    lines = []
    for outcome in result.outcomes:
        foreign = [sample.details.get(FOREIGN_CORES, 0.0) for sample in outcome.samples]
        disturbed = sum(cores > DISTURBING_CORES for cores in foreign)
        if disturbed:
            runs = f"{disturbed} of {len(foreign)} runs"
            most = f"others used up to {max(foreign):.1f} cores"
            lines.append(f"disturbed: {outcome.name}: {runs}, {most}")
    return lines


def text(result: Result) -> str:
    """Return everything there is to say about a measurement.

    Args:
        result: A finished measurement.
    """
    title = f"{result.measurement.name}: {result.measurement.title}"
    parts = [title, "-" * len(title)]
    if all(outcome.status is Status.NOT_RUN for outcome in result.outcomes):
        return "\n".join(parts + problems(result))
    parts.append(main_table(result))
    ratios = vs_table(result)
    if ratios:
        parts += ["", ratios]
    for lines in (targets(result), problems(result)):
        if lines:
            parts += ["", *lines]
    return "\n".join(parts)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write the document of a whole run.

    Args:
        path: Where to; its directory is made if missing.
        document: Plain values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def plot(path: Path, results: Sequence[Result]) -> str:
    """Draw the medians, with the range of all runs, into a picture.

    Args:
        path: Where to.
        results: Finished measurements.

    Returns:
        What was done, in a line.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return "no plot: matplotlib is not installed"
    drawn = [one for one in results if any(other.samples for other in one.outcomes)]
    if not drawn:
        return "no plot: nothing was measured"
    figure, axes = pyplot.subplots(len(drawn), 1, figsize=(9, 3 * len(drawn)), squeeze=False)
    for axis, result in zip(axes[:, 0], drawn, strict=True):
        _draw(axis, result)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return f"plot: {path.name}"


def _draw(axis: Any, result: Result) -> None:  # noqa: ANN401 (matplotlib is optional)
    metric = result.measurement.metric
    shown = [(outcome, outcome.summary) for outcome in reversed(result.outcomes) if outcome.summary is not None]
    scale = 1000.0 if metric.unit == "ns" else 1.0
    medians = [summary.median / scale for _, summary in shown]
    low = [(summary.median - summary.min) / scale for _, summary in shown]
    high = [(summary.max - summary.median) / scale for _, summary in shown]
    ours = [outcome.contender.kind is Kind.OURS for outcome, _ in shown]
    axis.barh(
        [outcome.name for outcome, _ in shown],
        medians,
        xerr=[low, high],
        color=["tab:orange" if one else "tab:blue" for one in ours],
        error_kw=ERROR_BARS,
    )
    axis.set_title(result.measurement.title, fontsize=10)
    axis.set_xlabel(metric.name, fontsize=9)
    axis.tick_params(labelsize=8)
