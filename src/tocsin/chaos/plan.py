"""The plan of faults: as written on a command line, or drawn from a seed.

    TARGET[~OTHERS][:DURATION][@TIME]             broker/north-1    coordinator-1:5s    cluster/north~store:3s@20s
    TARGET[~OTHERS]=AMOUNT[:DURATION][@TIME]      cluster/north~cluster/south=50ms:10s

TARGET is a part of the network, or several at once (``chaos.targets``); of a fault of one's own, a program
(``chaos.own``). OTHERS, for partitions and weather only, names the parts at the other end of the links. AMOUNT is of
weather (``runtime.faults.weather``): a lag, a share of loss, or bytes a second. TIME counts from when the load
runs; faults without one follow each other. The same seed, candidates and times make the same schedule.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final, Literal, get_args

import msgspec

from tocsin.errors import OperatorError
from tocsin.runtime.faults.weather import Weather

Kind = Literal["kill", "restart", "pause", "slow", "partition", "lag", "loss", "rate", "own"]
OWN: Final = "own"
WEATHER: Final[tuple[Kind, ...]] = ("lag", "loss", "rate")  # has an amount
ON_LINKS: Final[tuple[Kind, ...]] = ("partition", *WEATHER)  # is of connections between processes
WRITTEN: Final[tuple[Kind, ...]] = get_args(Kind)  # what can be asked for
INSTANT: Final[tuple[Kind, ...]] = ("kill", "restart")  # over at once
# The kinds that ``--random`` may choose: only faults that need no amount.
KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in WRITTEN if kind not in (OWN, "restart", *WEATHER))
DURATIONS_S: Final[dict[Kind, float]] = {
    "kill": 0.0,
    "restart": 0.0,
    "pause": 5.0,
    "slow": 10.0,
    "partition": 5.0,
    "lag": 10.0,
    "loss": 10.0,
    "rate": 10.0,
    "own": 10.0,
}
DURATION_MAX_S: Final = 600.0
LEAST_S: Final = 0.5  # of a fault by chance: less than any lease or suspicion
LONGEST_S: Final = 8.0  # more than twice the default ones
FAULTS_MAX: Final = 10_000
EVERYTHING: Final = ""  # the parts that a partition cuts off from, if none is named

_FAULT: Final = re.compile(
    r"(?P<target>[^~:@\s]+)(~(?P<others>[^~:@\s]+))?(:(?P<seconds>[^~:@\s]+))?(@(?P<at>[^~:@\s]+))?"
)
_WEATHER: Final = re.compile(
    r"(?P<target>[^~:@=\s]+)(~(?P<others>[^~:@=\s]+))?(=(?P<amount>[^~:@=\s]+))?(:(?P<seconds>[^~:@\s]+))?"
    r"(@(?P<at>[^~:@\s]+))?"
)
_SHARE: Final = re.compile(r"(?P<number>\d{1,3}(\.\d{1,6})?)%")
_BYTES: Final = re.compile(r"(?P<number>\d{1,6}(\.\d{1,6})?)(?P<unit>B|KB|MB)")
_SIZES: Final = {"B": 1, "KB": 1_000, "MB": 1_000_000}
AMOUNTS: Final[dict[Kind, str]] = {"lag": "50ms", "loss": "1%", "rate": "20KB"}  # examples
_TIME: Final = re.compile(r"(?P<number>\d{1,6}(\.\d{1,6})?)(?P<unit>ms|s|m)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Fault(msgspec.Struct, frozen=True):
    """One thing that is done to the network."""

    kind: Kind
    target: str
    seconds: float = 0.0  # how long it lasts; 0: it is over at once
    at_s: float | None = None  # from the start of the load; None: when its turn comes
    others: str = EVERYTHING
    amount: float = 0.0  # of weather: seconds, a share, or bytes a second

    @property
    def weather(self) -> Weather | None:
        """What a link has meanwhile; None: nothing passes it, or the fault is not of links."""
        match self.kind:
            case "lag":
                return Weather(lag_s=self.amount)
            case "loss":
                return Weather(loss=self.amount)
            case "rate":
                return Weather(rate=int(self.amount))
        return None

    def __str__(self) -> str:
        others = f" {'to' if self.kind in WEATHER else 'from'} {self.others}" if self.others else ""
        lasting = f" for {self.seconds:.3g} s" if self.seconds else ""
        much = f" of {amount_text(self.kind, self.amount)}" if self.kind in WEATHER else ""
        return f"{self.kind}{much} {self.target}{others}{lasting}"


def amount_text(kind: Kind, amount: float) -> str:
    """As people read it."""
    match kind:
        case "lag":
            return f"{amount * 1_000:g} ms"
        case "loss":
            return f"{amount * 100:g} %"
    return f"{amount:g} bytes a second"


class Candidate(msgspec.Struct, frozen=True):
    """The targets and kinds that ``--random`` may choose, and the parts that a target may be cut off from."""

    target: str
    kinds: tuple[Kind, ...]
    others: tuple[str, ...] = (EVERYTHING,)


def read_time(option: str, text: str) -> float:
    """Seconds, from ``500ms``, ``5s`` or ``2m``. Raises ``OperatorError``."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise OperatorError(f"{option}: {text!r} is not a time", "Write it with its unit: 500ms, 5s or 2m")
    return float(found["number"]) * _UNITS[found["unit"]]


def read_fault(kind: Kind, text: str) -> Fault:
    """The faults of an option such as ``--pause coordinator-1:5s``. Raises ``OperatorError``."""
    option = f"--{kind} {text}"
    found = (_WEATHER if kind in WEATHER else _FAULT).fullmatch(text)
    if found is None:
        raise OperatorError(f"{option} cannot be read", f"Write it as {_form(kind)}")
    if found["others"] and kind not in ON_LINKS:
        raise OperatorError(f"{option}: only faults of links have others", f"Write it as {_form(kind)}")
    if found["seconds"] and kind in INSTANT:
        raise OperatorError(f"{option}: a {kind} has no duration", f"Write it as {_form(kind)}")
    seconds = read_time(option, found["seconds"]) if found["seconds"] else DURATIONS_S[kind]
    if kind not in INSTANT and not 0 < seconds <= DURATION_MAX_S:
        raise OperatorError(
            f"{option}: a fault of {seconds:g} s", f"Let it last more than 0 and at most {DURATION_MAX_S:g} s"
        )
    at_s = read_time(option, found["at"]) if found["at"] else None
    amount = _read_amount(kind, option, found["amount"] or "") if kind in WEATHER else 0.0
    fault = Fault(kind, found["target"], seconds, at_s, found["others"] or EVERYTHING, amount)
    if fault.weather is not None and fault.weather.problem:
        raise OperatorError(f"{option}: {fault.weather.problem}", f"Write it as {_form(kind)}")
    return fault


def _read_amount(kind: Kind, option: str, text: str) -> float:
    """Of a lag in seconds, of a loss as a share, of a rate in bytes a second; never nothing."""
    if not text:
        raise OperatorError(f"{option}: it is not said how much", f"Write it as {_form(kind)}")
    if kind == "lag":
        amount = read_time(option, text)
    else:
        found = (_SHARE if kind == "loss" else _BYTES).fullmatch(text)
        if found is None:
            what = "a share" if kind == "loss" else "a number of bytes"
            raise OperatorError(f"{option}: {text!r} is not {what}", f"Write it as {_form(kind)}")
        factor = 0.01 if kind == "loss" else _SIZES[found["unit"]]
        amount = float(found["number"]) * factor
    if not amount:
        raise OperatorError(f"{option}: {text} is nothing", f"Write it as {_form(kind)}")
    return amount


def _form(kind: Kind) -> str:
    if kind == OWN:
        return "--own PROGRAM[:10s][@20s], such as --own ./unplug.sh:30s"
    if kind in WEATHER:
        much = AMOUNTS[kind]
        return f"--{kind} TARGET[~OTHERS]={much}[:10s][@20s], such as --{kind} cluster/north~cluster/south={much}"
    others, lasting = ("[~OTHERS]" if kind == "partition" else ""), ("" if kind in INSTANT else "[:5s]")
    return f"--{kind} TARGET{others}{lasting}[@20s], such as --{kind} broker/north-1"


def in_turn(faults: Sequence[Fault], every_s: float) -> tuple[Fault, ...]:
    """Each with a time, in order: those without one come one after the other, ``every_s`` apart."""
    timed: list[Fault] = []
    turn = 0
    for fault in faults:
        if fault.at_s is None:
            turn += 1
            fault = msgspec.structs.replace(fault, at_s=turn * every_s)
        timed.append(fault)
    return tuple(sorted(timed, key=_begins))


def by_chance(
    candidates: Sequence[Candidate], kinds: Sequence[Kind], *, seed: int, seconds: float, every_s: float
) -> tuple[Fault, ...]:
    """A fault every ``every_s`` while the run lasts, none on a target that is still broken from the one before.

    Raises ``OperatorError`` if none of the candidates can be broken in one of these ways.
    """
    chance = random.Random(seed)
    possible = [(each, kind) for each in candidates for kind in each.kinds if kind in kinds]
    if not possible:
        raise OperatorError(
            f"no target can be broken by {', '.join(kinds)}", "Name other --kinds or --targets"
        )
    faults: list[Fault] = []
    over_s: dict[str, float] = {}  # when each target is whole again
    for turn in range(1, min(int(seconds / every_s), FAULTS_MAX) + 1):
        at_s = turn * every_s
        whole = [pair for pair in possible if over_s.get(pair[0].target, 0.0) <= at_s]
        usable = [kind for kind in KINDS if any(kind == each for _, each in whole)]
        if not usable:
            continue
        kind = chance.choice(usable)
        candidate = chance.choice([each for each, its_kind in whole if its_kind == kind])
        lasting = 0.0 if kind == "kill" else round(chance.uniform(LEAST_S, LONGEST_S), 1)
        others = chance.choice(candidate.others) if kind == "partition" else EVERYTHING
        faults.append(Fault(kind, candidate.target, lasting, at_s, others))
        over_s[candidate.target] = at_s + lasting
    return tuple(faults)


def ends_s(faults: Sequence[Fault]) -> float:
    """When the last of them is over."""
    return max((_begins(fault) + fault.seconds for fault in faults), default=0.0)


def _begins(fault: Fault) -> float:
    assert fault.at_s is not None, "its turn is known"
    return fault.at_s
