"""The statements of the paper's text about its figures, held against our results.

Most of the paper's figures have no numbers in its text. It says which curve is below which, and which grows. Each
such statement is a claim, which holds here or does not, with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tocsin_labs.figures import shown
from tocsin_labs.reaps.failures import ONE_BY_ONE, ONE_EACH, Failed
from tocsin_labs.reaps.overheads import Overhead
from tocsin_labs.reaps.replication import Mode, Replicated
from tocsin_labs.reaps.retrieval import REAPS, Retrieved
from tocsin_labs.statements import Claim


def of_retrieval(rows: Sequence[Retrieved]) -> list[Claim]:
    """The claims on Fig 4a, at the largest size."""
    last = {each.scheme: each.mean_mb_s for each in rows if each.subscribers == rows[-1].subscribers}
    reaps, worst, similar = last[REAPS], last["AR, RND"], last["AR, LCS/MMCS"]
    return [
        Claim(
            "4a",
            "active replication fetches more than REAPS",
            min(worst, similar) > reaps,
            f"{shown(similar)} to {shown(worst)} against {shown(reaps)} MB/s a broker",
        ),
        Claim(
            "4a",
            "similar backups lessen what active replication fetches",
            similar < worst,
            f"{shown(similar)} with LCS/MMCS, {shown(worst)} MB/s with RND",
        ),
    ]


def of_overheads(rows: Sequence[Overhead]) -> list[Claim]:
    """The claims on Figs 4b and 4c, at every size."""
    ratio = max(each.paper.overhead / each.random.overhead for each in rows if each.random.overhead)
    worst = max(each.paper.largest for each in rows)
    return [
        Claim(
            "4b",
            "REAPS keeps fewer backup subscriptions than RND",
            all(each.paper.overhead < each.random.overhead for each in rows),
            f"at most {shown(ratio)} of those of RND, at any size",
        ),
        Claim(
            "4c",
            "the worst broker of REAPS has fewer to create than that of RND",
            all(each.paper.largest < each.random.largest for each in rows),
            f"at most {shown(worst)}, and {shown(min(each.random.largest for each in rows))} or more with RND",
        ),
    ]


def of_replication(rows: Sequence[Replicated]) -> list[Claim]:
    """The claims on Fig 4d."""
    names: dict[Mode, str] = {
        "periodic": "periodic",
        "clients": "threshold of clients",
        "volume": "threshold of volume",
        "ideal": "threshold of volume without any delay (a model)",
    }
    by_mode = {mode: _of(rows, mode) for mode in names}
    monotone = all(
        more.retrieved_mb <= less.retrieved_mb for each in by_mode.values() for less, more in pairwise(each)
    )
    claims = [
        Claim(
            "4d",
            "more messages, fewer duplicates",
            monotone,
            "of any two settings of one kind the one with more messages repeats less",
        )
    ]
    for mode in ("volume", "ideal", "clients"):
        ratios = at_the_same_messages(by_mode["periodic"], by_mode[mode])
        mean = sum(ratios) / len(ratios) if ratios else None
        claims.append(
            Claim(
                "4d",
                f"at the same number of messages a {names[mode]} repeats slightly less than periodic replication",
                mean is not None and mean < 1,
                f"{shown(mean)} times on average over {len(ratios)} numbers of messages"
                + (f", {shown(min(ratios))} to {shown(max(ratios))}" if ratios else ""),
            )
        )
    return claims


def _of(rows: Iterable[Replicated], mode: Mode) -> list[Replicated]:
    return sorted((each for each in rows if each.mode == mode), key=lambda each: each.messages_min)


def at_the_same_messages(base: Sequence[Replicated], other: Sequence[Replicated]) -> list[float]:
    """The ratio of duplicates, ``other`` over ``base``, at each number of messages of ``base`` that lies between two
    of ``other``; both by rising messages. Between two settings it is straight over the time between messages: what is
    repeated grows with that time."""
    found = []
    for each in base:
        for low, high in pairwise(other):
            if 0 < low.messages_min < high.messages_min and (
                low.messages_min <= each.messages_min <= high.messages_min
            ):
                longest, shortest = 1 / low.messages_min, 1 / high.messages_min
                share = (1 / each.messages_min - shortest) / (longest - shortest)
                value = high.retrieved_mb + share * (low.retrieved_mb - high.retrieved_mb)
                if each.retrieved_mb:
                    found.append(value / each.retrieved_mb)
                break
    return found


def of_failures(rows: Sequence[Failed]) -> list[Claim]:
    """The claims on Figs 5a and 5b: for each capacity, with the paper's own way to choose backups, and with a plan in
    which nobody stands in for several."""
    claims: list[Claim] = []
    series_of = [
        (
            "with all the room there could be" if room is None else f"with room for {room:g}",
            [each for each in rows if each.room == room and each.scheme == "LCS/MMCS"],
        )
        for room in dict.fromkeys(each.room for each in rows)
    ]
    apart = [each for each in rows if each.scheme == ONE_EACH]
    series_of.append(("where no broker backs two of a cluster", apart))
    for where, series in series_of:
        first, last = series[0], series[-1]
        for figure, words, name, unit in (
            ("5a", "more failures, more duplicates, fetched", "retrieved_mb", "MB"),
            ("5a", "more failures, more duplicates, delivered", "delivered_mb", "MB"),
            ("5b", "more failures, more remote fail-overs", "remote_brokers", "brokers"),
            ("5b", "more failures, a longer recovery", "longest_s", "s"),
        ):
            values = [getattr(each, name) for each in series]
            claims.append(
                Claim(
                    figure,
                    f"{words} ({where})",
                    all(less <= more for less, more in pairwise(values)) and values[0] < values[-1],
                    f"{shown(values[0])} {unit} with {first.failed} failed, {shown(values[-1])} with {last.failed}"
                    + _drops(series, values),
                )
            )
    return [*claims, _in_bulk(rows)]


def _in_bulk(rows: Sequence[Failed]) -> Claim:
    """The reason that the paper gives for slow remote fail-overs: subscriptions are created one by one."""
    last = [each for each in rows if each.failed == rows[-1].failed]
    alone = max((each for each in last if each.scheme == ONE_BY_ONE), key=lambda each: each.created)
    bulk = next(each for each in last if each.scheme == "LCS/MMCS" and each.room == alone.room)
    evidence = (
        f"{shown(alone.created)} of them: all served after {shown(alone.served_s)} s one by one, "
        f"{shown(bulk.served_s)} s in bulk"
    )
    where = "no bound" if alone.room is None else f"room for {alone.room:g}"
    words = f"remote fail-over is slow because subscriptions are created (a whole cluster failed, {where})"
    return Claim("5b", words, alone.served_s > bulk.served_s, evidence)


def _drops(series: Sequence[Failed], values: Sequence[float]) -> str:
    """The points at which it does not grow, as text."""
    drops = [
        f"{shown(less)} with {before.failed} and {shown(more)} with {after.failed}"
        for (before, less), (after, more) in pairwise(zip(series, values, strict=True))
        if more < less
    ]
    return f", but {', '.join(drops)}" if drops else ""
