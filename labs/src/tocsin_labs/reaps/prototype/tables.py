"""The results as rows: paper, ours, ratio; and the paper's statements, which hold here or do not.

The paper's text has no value of Fig 3a or 3b, only how many subscribers there were, and statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from tocsin_demo.scene import Account
from tocsin_labs.figures import Comparison, shown
from tocsin_labs.reaps.prototype.outcome import Line, Middle, Outcome, by_size, line
from tocsin_labs.reaps.prototype.plan import BY_SIZE, FROZEN, WAYS, Way
from tocsin_labs.statements import Claim

TARGET_S: Final = 1.0  # a local fail-over of all subscribers, after detection
STRAIGHT: Final = 0.9  # of the variance of medians that a line explains, if we are to call something linear
SIGNIFICANT: Final = 0.8  # a local fail-over takes at most so much of a remote one, if it is to be much less
PROPORTIONAL: Final = 0.25  # of the longest time that may be left for no subscribers, if it is proportional
FAILED: Final[tuple[Way, Way]] = ("local", "remote")


def comparisons(failures: Sequence[Outcome], account: Account | None) -> list[Comparison]:
    """The rows of all measurements; the largest number of subscribers in full."""
    rows: list[Comparison] = []
    for way in WAYS:
        sizes = by_size(failures, way)
        if sizes:
            rows += _progress(way, *list(sizes.items())[-1])
    for way in BY_SIZE:
        sizes = by_size(failures, way)
        if len(sizes) > 1:
            rows += [
                _row("3b", f"{way}, {size} subscribers: all served again", "s", found)
                for size, each in sizes.items()
                if (found := Middle.of(one.all_served_s for one in each)) is not None
            ]
        if len(sizes) > 1 and way in FROZEN:
            rows += [
                _row("3b", f"{way}, {size} subscribers: all served after detection", "s", found)
                for size, each in sizes.items()
                if (found := Middle.of(one.after_detection_s for one in each)) is not None
            ]
        if (straight := fitted(failures, way)) is not None:
            rows.append(_plain("3b", f"{way}: for each subscriber", "ms", straight.slope * 1_000))
            rows.append(_plain("3b", f"{way}: for none", "ms", straight.intercept * 1_000))
            rows.append(_plain("3b", f"{way}: explained by a line, of the medians", "R²", straight.explained))
        if (single := scattered(failures, way)) is not None:
            rows.append(_plain("3b", f"{way}: explained by a line, of all runs", "R²", single.explained))
    return rows + _account(failures, account)


def _progress(way: Way, size: int, outcomes: Sequence[Outcome]) -> list[Comparison]:
    name = f"{way}, {size} subscribers"
    target = TARGET_S if way == "local" else None
    figures = (
        ("the broker is declared lost", [each.detected_s for each in outcomes], None),
        ("the first is served again", [each.served_s[0] for each in outcomes], None),
        ("half are served again", [each.served_s[len(each.served_s) // 2] for each in outcomes], None),
        ("all are served again", [each.all_served_s for each in outcomes], None),
        ("the same after detection", [each.after_detection_s for each in outcomes], target),
        ("all are told what they missed", [each.all_told_s for each in outcomes if each.missed], None),
        ("the last of the others is told", [_last(each.others_told_s) for each in outcomes], None),
        ("all are at home again, once it is back", [_last(each.returned_s) for each in outcomes], None),
    )
    found = ((words, Middle.of(values), bound) for words, values, bound in figures)
    rows = [
        _row("3a", f"{name}: {words}", "s", middle, bound)
        for words, middle, bound in found
        if middle is not None
    ]
    at_backup = Middle.of(each.at_backup_percent for each in outcomes)
    if at_backup is not None:
        rows.append(_row("3a", f"{name}: at the broker that stands in", "%", at_backup))
    told = sum(not each.missed for each in outcomes)
    if told:
        rows.append(_plain("3a", f"{name}: told by the broker itself, before it ended", "runs", told))
    return [*rows, _plain("3a", f"{name}: failures measured", "runs", len(outcomes))]


def _last(times: Sequence[float]) -> float | None:
    return times[-1] if times else None


def _row(figure: str, words: str, unit: str, found: Middle, target: float | None = None) -> Comparison:
    spread = f"; {shown(found.least)} to {shown(found.most)}" if found.samples > 1 else ""
    return Comparison(figure, f"{words}{spread}", unit, None, found.median, target)


def _plain(figure: str, words: str, unit: str, value: float, target: float | None = None) -> Comparison:
    return Comparison(figure, words, unit, None, value, target)


def _account(failures: Sequence[Outcome], account: Account | None) -> list[Comparison]:
    if account is None:
        return []
    named: tuple[tuple[str, int, float | None], ...] = (
        ("made for all subscribers", account.committed, None),
        ("lost", account.lost, 1),
        ("given twice to a program", account.duplicates, 1),
        ("out of order", account.out_of_order, 1),
        ("given and never made", account.strange, 1),
        ("came twice, dropped by clients", account.repeats, None),
    )
    over = f"all, {len(failures)} failures"
    return [_plain(over, words, "notifications", value, target) for words, value, target in named]


def fitted(failures: Sequence[Outcome], way: Way) -> Line | None:
    """The line through the medians of one way: the paper's figure has a point for each size, too."""
    sizes = by_size(failures, way).items()
    return line([(size, median(each.all_served_s for each in outcomes)) for size, outcomes in sizes])


def scattered(failures: Sequence[Outcome], way: Way) -> Line | None:
    """The line through all fail-over times of one way: how far single ones are from any line."""
    return line([(each.subscribers, each.all_served_s) for each in failures if each.way == way])


def stated(failures: Sequence[Outcome], account: Account | None) -> list[Claim]:
    """The paper's statements, of all that was measured."""
    return [*_significant(failures), *_proportional(failures), *_kept(account)]


def _significant(failures: Sequence[Outcome]) -> list[Claim]:
    local, remote = by_size(failures, "local"), by_size(failures, "remote")
    both = [size for size in local if size in remote]
    if not both:
        return []
    near = Middle.of(each.all_served_s for each in local[both[-1]])
    far = Middle.of(each.all_served_s for each in remote[both[-1]])
    assert near is not None and far is not None
    evidence = (
        f"{both[-1]} subscribers served again after {shown(near.median)} s against {shown(far.median)} s "
        f"({shown(near.least)} to {shown(near.most)}, {shown(far.least)} to {shown(far.most)})"
    )
    words = "local fail-over takes significantly less time than remote"
    return [Claim("3a", words, near.median <= SIGNIFICANT * far.median, evidence)]


def _proportional(failures: Sequence[Outcome]) -> list[Claim]:
    claims = []
    for way in FAILED:
        straight = fitted(failures, way)
        if straight is None:
            continue
        sizes = [each.subscribers for each in failures if each.way == way]
        longest = straight.at(max(sizes))
        linear = straight.slope > 0 and straight.explained >= STRAIGHT
        evidence = (
            f"{shown(straight.intercept * 1_000)} ms and {shown(straight.slope * 1_000)} ms for each subscriber; "
            f"a line explains {shown(100 * straight.explained)} % of the variance of the medians"
        )
        claims.append(Claim("3b", f"{way} fail-over time grows linearly with subscribers", linear, evidence))
        direct = linear and abs(straight.intercept) <= PROPORTIONAL * longest
        share = (
            f"{shown(100 * straight.intercept / longest)} % of the time with {max(sizes)} is there with none"
        )
        claims.append(
            Claim("3b", f"{way} fail-over time is directly proportional to subscribers", direct, share)
        )
    return claims


def _kept(account: Account | None) -> list[Claim]:
    if account is None:
        return []
    evidence = f"{account.lost} of {account.committed} lost, {account.duplicates} given twice"
    return [Claim("–", "no notification is lost", account.lost == 0, evidence)]
