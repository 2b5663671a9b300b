"""The parameters of the simulation.

The paper's, as far as it says them: one backend, 100 brokers in 3 clusters, 100 000 subscribers, 100 channels with
periods of 10 to 600 s, 10 distinct subscriptions a channel, 10 KB to 10 MB a result. Its open points are decided so:
every subscriber has one subscription, any of them as likely as any other, and a home by chance; a subscription's
results have one size, uniform in the range; periods are uniform, in whole seconds, and begin anywhere.
"""

from __future__ import annotations

import msgspec

from tocsin.errors import OperatorError

SEED_MAX = 1 << 63


class Condition(msgspec.Struct, frozen=True):
    """A network that plans are compared on: ``room`` is the capacity over the mean load of a broker, None for all there
    could be; ``regional`` is the share of subscribers (in percent) that ask for what is their region's alone."""

    name: str
    room: float | None = None
    regional: int = 0


class Replicating(msgspec.Struct, frozen=True):
    """Fig 4d: one broker with its share of the subscribers, and how its positions are sent."""

    seconds: int = 1_200  # of virtual time, for each setting
    failures: int = 400  # moments at which it is asked what a failure would repeat
    periods_s: tuple[float, ...] = (0.5, 1, 2, 5, 10, 20, 40, 80)
    clients: tuple[int, ...] = (1, 10, 25, 50, 100, 200, 400, 600)  # by threshold, as the product counts
    volumes_mb: tuple[float, ...] = (
        1,
        25,
        50,
        100,
        250,
        500,
        1_000,
        2_000,
    )  # of what was delivered, and of what was fetched


class Failing(msgspec.Struct, frozen=True):
    """Figs 5a and 5b."""

    seconds: int = 180  # of virtual time, before the last failure
    moments: int = 8  # at which brokers fail
    draws: int = 3  # of who fails, at each moment
    timed: int = 2  # cases whose takeovers are simulated: they take longest
    failed: tuple[int, ...] = (1, 2, 5, 10, 15, 20, 25, 30)  # and then all of the cluster
    period_s: float = 5.0  # between two replications of positions: the product's default
    rooms: tuple[float | None, ...] = (None, 4.0)


class Parameters(msgspec.Struct, frozen=True):
    """All of it."""

    words: str = "the paper's parameters"  # its name, for readers of the results
    seed: int = 1
    brokers: int = 100
    clusters: int = 3
    subscribers: int = 100_000
    channels: int = 100
    subscriptions_each: int = 10
    period_s: tuple[int, int] = (10, 600)
    result_bytes: tuple[int, int] = (10_000, 10_000_000)
    steps_percent: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)  # of the subscribers
    retrieval_s: int = 3_600  # of virtual time
    draws: int = 5  # of RND
    conditions: tuple[Condition, ...] = (
        Condition("uniform"),
        Condition("uniform, room for 8", 8.0),
        Condition("uniform, room for 4", 4.0),
        Condition("regional", regional=80),
        Condition("regional, room for 4", 4.0, 80),
    )
    replicating: Replicating = Replicating()
    failing: Failing = Failing()


QUICK = Parameters(
    words="a quick form with fewer brokers, subscribers and channels, not to be compared with the paper's",
    brokers=18,
    subscribers=1_800,
    channels=20,
    subscriptions_each=5,
    period_s=(10, 60),
    steps_percent=(25, 50, 100),
    retrieval_s=600,
    draws=3,
    replicating=Replicating(
        seconds=240,
        failures=100,
        periods_s=(1, 2, 5, 20),
        clients=(1, 10, 40),
        volumes_mb=(1, 50, 200, 800),
    ),
    failing=Failing(seconds=60, moments=3, draws=2, timed=1, failed=(1, 2, 4)),
)


def parameters(*, quick: bool, seed: int) -> Parameters:
    """The parameters of the command line. Raises ``OperatorError``."""
    if not 0 <= seed < SEED_MAX:
        raise OperatorError(f"--seed {seed} is out of range", f"Give 0 to {SEED_MAX - 1}")
    return msgspec.structs.replace(QUICK if quick else Parameters(), seed=seed)
