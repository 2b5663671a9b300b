"""The results, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from tocsin_labs.figures import Comparison, Spread
from tocsin_labs.landmark import paper
from tocsin_labs.landmark.bandwidth import Narrowed
from tocsin_labs.landmark.control import Controlled
from tocsin_labs.landmark.crowd import total
from tocsin_labs.landmark.latency import ARRIVE_S, Trial
from tocsin_labs.landmark.objects import Kind, Recovered, slope
from tocsin_labs.landmark.plan import Detect
from tocsin_labs.landmark.scale import TENTH, Kill, Rest
from tocsin_labs.landmark.sequence import Sequenced

# This project's own targets.
HEARTBEATS_TARGET: Final = 0.2  # KB/s a broker
RECOVERY_TARGET_S: Final[dict[Detect, float]] = {"default": 3.0, "aggressive": 1.0}
LEADER_TARGET_S: Final = 1.0  # of a processor, while a tenth of all brokers is lost
LATE: Final = f"messages not there {ARRIVE_S:.0f} s after the last"  # lost, or still on the way
AT_ONCE_TARGET: Final = 1.5  # times: how much longer as many as five may take than one
REPLACED: Final = "a standby in each place"  # what the paper calls recovered
STEPS: Final = {  # of a run, as they are in a table
    "detected_s": "all detected",
    "taken_over_s": "all taken over",
    "back_s": "all subscribers connected",
    "first_s": "every broker's first message delivered",
    "served_s": "all subscribers have a new message",
}


def control_rows(found: Sequence[Controlled]) -> list[Comparison]:
    rows: list[Comparison] = []
    for each in found:
        name = f"Table 1, {each.brokers} brokers"
        published, beats = paper.CONTROL.get(each.brokers), each.heartbeats / each.brokers
        share = None if published is None else published / each.brokers
        rows += [
            Comparison(name, "control traffic, with headers", "KB/s", published, each.total.mean),
            Comparison(name, "standard deviation", "KB/s", None, each.total.deviation),
            Comparison(name, "the same without headers", "KB/s", published, each.payload),
            Comparison(name, "the coordinator's part, with headers", "KB/s", published, each.coordinator),
            Comparison(name, "heartbeats alone", "KB/s", published, each.heartbeats),
            Comparison(name, "of one broker, with headers", "KB/s", share, each.each),
            Comparison(name, "of one broker, heartbeats", "KB/s", share, beats, HEARTBEATS_TARGET),
            Comparison(name, "all processes at rest", "% of one processor", None, 100 * each.busy),
            *(Comparison(name, f"of it {kind.name}", "KB/s", None, kind.kb) for kind in each.kinds),
        ]
    return rows


def object_rows(found: Sequence[Recovered]) -> list[Comparison]:
    return [*_objects(found, "queues"), *_objects(found, "routes")]


def _objects(found: Sequence[Recovered], kind: Kind) -> list[Comparison]:
    table, published, each_published = {
        "queues": ("Table 2", paper.QUEUES, paper.QUEUE_EACH),
        "routes": ("Table 3", paper.ROUTES, paper.ROUTE_EACH),
    }[kind]
    mine = [each for each in found if each.kind == kind]
    rows: list[Comparison] = []
    for count in sorted({each.count for each in mine}):
        some = [each for each in mine if each.count == count]
        spread = Spread.of(each.total for each in some)
        assert spread is not None, "there are some of each count"
        name = f"{table}, {count} {kind}"
        rows += [
            Comparison(name, "recovery traffic", "KB", published.get(count), spread.mean),
            Comparison(name, "standard deviation", "KB", None, spread.deviation),
            Comparison(name, "the coordinator's part", "KB", published.get(count), mean(some, "coordinator")),
            Comparison(name, "clients that come back", "KB", None, mean(some, "clients")),
        ]
    line = slope([(each.count, each.total) for each in mine])
    if line is not None:
        base, each_more = line
        own = slope([(count, kb) for count, kb in published.items()])
        assert own is not None, "the paper has several counts"
        rows += [
            Comparison(table, f"each of the {kind} adds", "KB", each_published, each_more),
            Comparison(table, f"with no {kind} (where the line begins)", "KB", own[0], base),
        ]
    return rows


def mean(rows: Sequence[Recovered], name: str) -> float:
    return sum(float(getattr(row, name)) for row in rows) / len(rows)


def latency_rows(trials: Sequence[Trial], resting: dict[str, float]) -> list[Comparison]:
    rows: list[Comparison] = []
    for detect in dict.fromkeys(trial.detect for trial in trials):
        mine = [trial for trial in trials if trial.detect == detect]
        counts = sorted({trial.failures for trial in mine})
        for failures in counts:
            rows += _failures([trial for trial in mine if trial.failures == failures])
        rows += _parallel(mine, counts)
        name = f"Table 4, {detect}"
        due, lost = sum(trial.account.due for trial in mine), sum(trial.account.lost for trial in mine)
        twice = sum(trial.account.twice for trial in mine)
        disordered = sum(trial.account.disordered for trial in mine)
        rows += [
            Comparison(name, "messages lost", f"of {due}", None, lost, 1),
            Comparison(name, "messages given twice", f"of {due}", None, twice),
            Comparison(name, "messages out of order", f"of {due}", None, disordered),
            Comparison(
                name, "brokers taken for lost wrongly", "in all runs", None, sum(t.wrongly for t in mine)
            ),
            Comparison(name, "brokers whose two backups failed too", "in all runs", None, _bereft(mine)),
            Comparison(name, "subscribers not home again in time", "in all runs", None, _who(mine, "strays")),
            Comparison(
                name,
                "subscribers not served when all are back",
                "in all runs",
                None,
                _who(mine, "unserved"),
                1,
            ),
        ]
        if detect in resting:
            rows.append(
                Comparison(name, "all processes at rest", "% of one processor", None, 100 * resting[detect])
            )
    return rows


def _who(trials: Sequence[Trial], lacking: Literal["strays", "unserved"]) -> int:
    """Subscribers that are not at home by a run's end may be away after the next ones, too: each counts once."""
    return len({words.partition(" ")[0] for trial in trials for words in getattr(trial, lacking)})


def _bereft(trials: Sequence[Trial]) -> int:
    return sum(outcome.bereft for trial in trials for outcome in trial.outcomes)


def _failures(trials: Sequence[Trial]) -> list[Comparison]:
    detect, failures = trials[0].detect, trials[0].failures
    name = f"Table 4, {detect}, {failures} at once"
    missing = sum(trial.last("recovered_s") is None for trial in trials)
    unfilled = sum(trial.last("replaced_s") is None for trial in trials)
    rows = [
        *_spread(name, REPLACED, _known(trial.last("replaced_s") for trial in trials), failures),
        *_spread(name, "recovered", _known(trial.last("recovered_s") for trial in trials), failures, detect),
    ]
    for field, words in STEPS.items():
        spread = Spread.of(_known(trial.last(field) for trial in trials))
        rows.append(Comparison(name, f"{words}, mean", "s", None, None if spread is None else spread.mean))
    if missing:
        rows.append(Comparison(name, "runs that did not recover in time", f"of {len(trials)}", None, missing))
    if unfilled and unfilled < len(trials):
        words = "runs with a place that no standby took in time"
        rows.append(Comparison(name, words, f"of {len(trials)}", None, unfilled))
    return rows


def _spread(
    name: str, words: str, times: Sequence[float], failures: int, detect: Detect | None = None
) -> list[Comparison]:
    """Mean, deviation, longest and shortest, beside what the paper has; its recovered is a broker replaced. ``detect``:
    there is a target."""
    if not times and words == REPLACED:
        return []  # there are no standbys
    found, theirs = Spread.of(times), paper.LATENCY.get(failures)
    target = None if detect is None else RECOVERY_TARGET_S[detect]
    ours = (None,) * 3 if found is None else (found.mean, found.deviation, found.longest)
    published = (
        (None,) * 4 if theirs is None else (theirs.mean, theirs.deviation, theirs.longest, theirs.shortest)
    )
    return [
        Comparison(name, f"{words}, mean", "s", published[0], ours[0], target),
        Comparison(name, f"{words}, standard deviation", "s", published[1], ours[1]),
        Comparison(name, f"{words}, longest", "s", published[2], ours[2]),
        Comparison(name, f"{words}, shortest", "s", published[3], min(times, default=None)),
    ]


def bandwidth_rows(found: Sequence[Narrowed]) -> list[Comparison]:
    rows: list[Comparison] = []
    for each in found:
        for failures in sorted({trial.failures for trial in each.trials}):
            trials = [trial for trial in each.trials if trial.failures == failures]
            name = f"Table 4, {each.condition.words}, {failures} at once"
            theirs = paper.LATENCY.get(failures)
            published = None if theirs is None or each.condition.mbit != paper.LINKS_MBIT else theirs.mean
            for field, words in (("replaced_s", REPLACED), *STEPS.items()):
                theirs_s = published if words == REPLACED else None
                ours = mean_of_all(trials, field)
                rows.append(Comparison(name, f"{words}, mean", "s", theirs_s, ours))
        name = f"Table 4, {each.condition.words}"
        account = total(trial.account for trial in each.trials)
        wrongly = sum(trial.wrongly for trial in each.trials)
        rows += [
            Comparison(name, LATE, f"of {account.due}", None, account.lost),
            Comparison(name, "brokers taken for lost wrongly", "in all runs", None, wrongly),
            Comparison(name, "carried meanwhile, with background", "Mbit/s", None, each.carried_mbit),
        ]
    return rows


def mean_of_all(trials: Sequence[Trial], field: str) -> float | None:
    """None if it did not happen in time in one of them: a mean of the others would look better than it was."""
    times = [trial.last(field) for trial in trials]
    known = _known(times)
    return sum(known) / len(known) if known and len(known) == len(times) else None


def _parallel(trials: Sequence[Trial], counts: Sequence[int]) -> list[Comparison]:
    """The most at once, against one."""
    if len(counts) < 2 or counts[0] != 1:
        return []
    most = counts[-1]
    one, many = (
        Spread.of(_known(trial.last("recovered_s") for trial in trials if trial.failures == count))
        for count in (1, most)
    )
    if one is None or many is None:
        return []
    theirs = paper.LATENCY.get(most)
    published = None if theirs is None else theirs.mean / paper.LATENCY[1].mean
    ours, words = many.mean / one.mean, f"{most} at once, against one"
    return [Comparison(f"Table 4, {trials[0].detect}", words, "times", published, ours, AT_ONCE_TARGET)]


def _known(times: Iterable[float | None]) -> list[float]:
    return [each for each in times if each is not None]


def sequence_rows(found: Sequence[Sequenced]) -> list[Comparison]:
    rows: list[Comparison] = []
    for each in found:
        name = f"Fig 8, {each.way}"
        rows += [
            Comparison(name, "messages lost", f"of {each.account.due}", 0, each.account.lost, 1),
            Comparison(name, "messages given twice", f"of {each.account.due}", None, each.account.twice),
            Comparison(name, "longest from sending to arrival", "s", None, each.silence_s),
        ]
        if each.oldest_s is not None:
            rows += [
                Comparison(
                    name, "messages that expired undelivered", f"of {each.expiring}", None, each.expired
                ),
                Comparison(name, "oldest delivered message that expires", "s", None, each.oldest_s),
            ]
        if each.detected_s is not None:
            rows.append(Comparison(name, "detected after", "s", None, each.detected_s - each.killed_s))
        if each.replaced_s is not None:
            words = "a standby in its place after"
            rows.append(Comparison(name, words, "s", None, each.replaced_s - each.killed_s))
    return rows


# ── the simulator ────────────────────────────────────────────────────────────────────────────────────────────


def scale_rows(rests: Sequence[Rest], kills: Sequence[Kill]) -> list[Comparison]:
    """Sizes that the paper does not have get fewer rows: one failure, the most at once, and larger groups."""
    rows = [row for rest in rests for row in _rest(rest)]
    for brokers, detect in dict.fromkeys((kill.brokers, kill.detect) for kill in kills):
        mine = [kill for kill in kills if (kill.brokers, kill.detect) == (brokers, detect)]
        whats = list(dict.fromkeys(kill.what for kill in mine))
        counts = [what for what in whats if what.isdigit()]
        for what in whats:
            if brokers == paper.BROKERS or what in (*counts[:1], *counts[-1:]) or what not in counts:
                rows += _killed([kill for kill in mine if kill.what == what])
        rows += _scaled(mine, counts)
    return rows


def _rest(rest: Rest) -> list[Comparison]:
    name = f"Table 1, simulated, {rest.brokers} brokers, {rest.detect}"
    published = paper.CONTROL.get(rest.brokers)
    share = None if published is None else published / rest.brokers
    return [
        Comparison(name, "heartbeats alone", "KB/s", published, rest.heartbeats),
        Comparison(name, "of one broker, heartbeats", "KB/s", share, rest.each, HEARTBEATS_TARGET),
        Comparison(name, "the leader at rest", "% of one processor", None, 100 * rest.effort.share),
    ]


def _killed(kills: Sequence[Kill]) -> list[Comparison]:
    brokers, detect, what = kills[0].brokers, kills[0].detect, kills[0].what
    name = f"Table 4, simulated, {brokers} brokers, {detect}, {what} at once"
    theirs = paper.LATENCY.get(int(what)) if brokers == paper.BROKERS and what.isdigit() else None
    published, target = None if theirs is None else theirs.mean, RECOVERY_TARGET_S[detect]
    replaced = [each for kill in kills for each in kill.replaced]
    rows = [
        Comparison(name, "all recorded as lost, mean", "s", None, _mean(kill.lost_s for kill in kills)),
        Comparison(
            name,
            "somebody stands in for each, mean",
            "s",
            published,
            _mean(kill.taken_over_s for kill in kills),
            target,
        ),
        Comparison(name, "a standby in a broker's place, mean", "s", published, _mean(replaced)),
        Comparison(name, "all have backups again, mean", "s", None, _mean(kill.planned_s for kill in kills)),
        Comparison(
            name,
            "the leader meanwhile, mean",
            "s of one processor",
            None,
            _mean(kill.effort.leader_s for kill in kills),
            LEADER_TARGET_S if what == TENTH else None,
        ),
    ]
    missing = sum(kill.is_unfinished for kill in kills)
    if missing:
        rows.append(Comparison(name, "runs that did not recover in time", f"of {len(kills)}", None, missing))
    return rows


def _scaled(kills: Sequence[Kill], counts: Sequence[str]) -> list[Comparison]:
    """The rows of one network, all runs together."""
    brokers, detect = kills[0].brokers, kills[0].detect
    name = f"Table 4, simulated, {brokers} brokers, {detect}"
    rows: list[Comparison] = []
    if len(counts) > 1 and counts[0] == "1":
        one, many = (
            _mean(kill.taken_over_s for kill in kills if kill.what == what)
            for what in (counts[0], counts[-1])
        )
        theirs = paper.LATENCY.get(int(counts[-1])) if brokers == paper.BROKERS else None
        published = None if theirs is None else theirs.mean / paper.LATENCY[1].mean
        words, ours = f"{counts[-1]} at once, against one", many / one if one and many else None
        rows.append(Comparison(name, words, "times", published, ours, AT_ONCE_TARGET))
    span_s, leader_s = sum(k.effort.span_s for k in kills), sum(k.effort.leader_s for k in kills)
    plans, planning_s = sum(k.effort.plans for k in kills), sum(k.effort.planning_s for k in kills)
    wrongly, bereft = sum(k.wrongly for k in kills), sum(fate.bereft for k in kills for fate in k.fates)
    longest_s = max(k.effort.longest_s for k in kills)
    busy = 100 * leader_s / span_s if span_s else None
    return [
        *rows,
        Comparison(name, "brokers taken for lost wrongly", "in all runs", None, wrongly, 1),
        Comparison(name, "brokers whose two backups failed too", "in all runs", None, bereft),
        Comparison(name, "the leader while brokers recover", "% of one processor", None, busy),
        Comparison(name, "the leader's longest step", "s of one processor", None, longest_s),
        Comparison(
            name, "a plan of backups", "s of one processor", None, planning_s / plans if plans else None
        ),
    ]


def _mean(times: Iterable[float | None]) -> float | None:
    known = _known(times)
    return sum(known) / len(known) if known else None
