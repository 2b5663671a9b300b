"""Takeovers as pictures: local beside remote by subscriptions, and repeats by how positions are copied."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.takeover.figures import Again, Point, read
from tocsin_labs import drawing

COLOURS: Final = {"local": "#2e5cb8", "remote": "#7d3c98"}
MODES: Final = {True: ("#1e8449", "o", "every …"), False: ("#c0392b", "s", "when so much was sent")}


def plot(results: Path, out: Path) -> list[str]:
    """Draw what there is of the results in a directory; the files that were drawn."""
    drawn = []
    channels, topics = read(results / "takeover.json", Point), read(results / "takeover_topics.json", Point)
    if channels:
        columns = 2 + bool(topics)
        figure, axes = drawing.pyplot().subplots(1, columns, figsize=(5 * columns, 4.6), layout="constrained")
        _by_size(axes[0], channels, "until all clients have their sessions", processor=False)
        _by_size(axes[1], channels, "the same: processor time of backup and store", processor=True)
        if topics:
            _by_size(axes[2], topics, "from CONNACK to the first message, QoS 0", processor=False)
        drawing.save(figure, out / "takeover.png")
        drawn.append("takeover.png")
    again = read(results / "takeover_positions.json", Again)
    if again:
        figure, (left, right) = drawing.pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        _repeats(left, again)
        _costs(right, again)
        drawing.save(figure, out / "repeats.png")
        drawn.append("repeats.png")
    return drawn


def _by_size(axes: Any, points: Sequence[Point], title: str, *, processor: bool) -> None:
    sizes = [each.subscriptions for each in points]
    for way, colour in COLOURS.items():
        if processor:
            middles = [1e3 * each.processor_s(way) for each in points]
            axes.plot(sizes, middles, "o-", color=colour, label=f"{way} backup")
            continue
        middles = [1e3 * each.median_s(way) for each in points]
        every = [[1e3 * one.passed_s for one in each.rounds(way)] for each in points]
        spread = [
            [middle - min(ms) for middle, ms in zip(middles, every, strict=True)],
            [max(ms) - middle for middle, ms in zip(middles, every, strict=True)],
        ]
        axes.errorbar(sizes, middles, yerr=spread, fmt="o-", capsize=3, color=colour, label=f"{way} backup")
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawing.finish(axes, title, "subscriptions at the lost broker, of ten clients", "ms")


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _repeats(axes: Any, points: Sequence[Again]) -> None:
    """Both modes, by the bytes that went to the backups."""
    for periodic, (colour, mark, label) in MODES.items():
        mine = sorted(
            (each for each in points if each.periodic is periodic),
            key=lambda each: _median(each.copied_bytes_s),
        )
        xs, ys = [_median(each.copied_bytes_s) for each in mine], [_median(each.repeats) for each in mine]
        axes.plot(xs, ys, "-", marker=mark, color=colour, label=label)
        for each, x, y in zip(mine, xs, ys, strict=True):
            axes.annotate(each.words, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    drawing.finish(axes, "messages that a client gets again", "bytes a second to both backups", "messages")


def _costs(axes: Any, points: Sequence[Again]) -> None:
    names = [each.words for each in points]
    colours = [MODES[each.periodic][0] for each in points]
    heights = [_median(each.repeats) for each in points]
    spread = [
        [height - min(each.repeats) for height, each in zip(heights, points, strict=True)],
        [max(each.repeats) - height for height, each in zip(heights, points, strict=True)],
    ]
    axes.bar(range(len(points)), heights, color=colours, yerr=spread, capsize=3, label="median, least, most")
    axes.set_xticks(range(len(points)), names, fontsize=8)
    drawing.finish(axes, "the same by replication.period_ms and threshold_bytes", "", "messages")
