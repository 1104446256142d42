# SPDX-License-Identifier: Apache-2.0
"""The plot of the README: shmbroker and its peers, one panel for each size of bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

PANELS = (
    ("one-to-one-64B", "consume", "64 B"),
    ("one-to-one-1KiB", "consume", "1 KiB"),
    ("in-place-64KiB", "zero-copy", "64 KiB"),
    ("in-place-1MiB", "zero-copy", "1 MiB"),
)
OURS, PEERS = "#c0392b", "#95a5a6"
INCHES = (9.0, 2.8)
UNITS = ((1e6, " M"), (1e3, " k"), (1.0, ""))
LEAST = 0.3  # of the slowest contender: where the logarithmic axis begins


def beside_peers(document: dict[str, Any], path: Path) -> None:
    """Draws messages per second, on logarithmic axes: our consumer or zero-copy way, and each peer that ran.

    Args:
        document: The JSON that a run of `benchmarks` wrote.
        path: The file of the image, SVG.
    """
    measurements = {one["name"]: one for one in document["measurements"]}
    rates = {title: _medians(measurements[name], way) for name, way, title in PANELS}
    first = next(iter(rates.values()))
    labels = sorted({label for each in rates.values() for label in each}, key=lambda label: first.get(label, 0.0))
    # Text stays text, and the same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "beside-peers", "font.size": 8}):
        figure = Figure(figsize=INCHES, layout="constrained")
        for axes, (title, rate) in zip(figure.subplots(1, len(PANELS), sharey=True), rates.items(), strict=True):
            colors = [OURS if label == "shmbroker" else PEERS for label in labels]
            bars = axes.barh(labels, [rate.get(label, 0.0) for label in labels], color=colors)
            axes.bar_label(bars, [_short(rate.get(label)) for label in labels], padding=2)
            axes.set_xscale("log")
            axes.set_xlim(LEAST * min(rate.values()), 20 * max(rate.values()))
            axes.set_title(title)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
            axes.tick_params(left=False, bottom=False, labelbottom=False, which="both")
        figure.supxlabel("messages per second, one producer, one consumer; logarithmic")
        figure.savefig(path, format="svg", metadata={"Date": None})


def _medians(measurement: dict[str, Any], way: str) -> dict[str, float]:
    """The median of our way, and that of each peer that ran."""
    ran = [one for one in measurement["contenders"] if one["status"] == "ok"]
    return {
        "shmbroker" if one["name"] == way else one["name"]: one["summary"]["median"]
        for one in ran
        if one["name"] == way or one["kind"] == "peer"
    }


def _short(rate: float | None) -> str:
    """A rate in three figures; a dash for a contender that did not run."""
    if rate is None:
        return "-"
    value, letter = next((rate / factor, letter) for factor, letter in UNITS if rate >= factor)
    return f"{value:.3g}{letter}"


def deep_queue(document: dict[str, Any], path: Path) -> None:
    """Draws a queue that is deeper than the memory of its broker: its messages, and the memory, over time.

    Args:
        document: The JSON that a run of `benchmarks.deep` wrote.
        path: The file of the image, SVG.
    """
    rows = document["deep"]["rows"]
    seconds = [row["seconds"] for row in rows]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deep-queue", "font.size": 8}):
        figure = Figure(figsize=INCHES, layout="constrained")
        messages, memory = figure.subplots(1, 2)
        messages.plot(seconds, [row["messages"] / 1e6 for row in rows], color=OURS)
        messages.set_title("messages in the queue, millions")
        memory.plot(seconds, [row["shared"] / 1e6 for row in rows], color=OURS, label="shared memory of the broker")
        memory.plot(
            seconds, [row["storekeeper"] / 1e6 for row in rows], color=PEERS, label="private memory of the storekeeper"
        )
        memory.set_title("memory, MB")
        memory.legend(frameon=False, loc="center right")
        for axes in (messages, memory):
            axes.set_ylim(bottom=0)
            axes.set_xlabel("seconds")
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})
