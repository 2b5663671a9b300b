"""Random clients that only spend cannot make a broker hold more than its budgets state.

They never read, never acknowledge, and send the largest that is allowed: publishes at every QoS, retained or not,
floods of requests, packets that are never finished, filters, groups and queries, wills, metadata, sessions that are
left and come back, in any order, while the store answers or hangs. The broker is one of real parts on sockets, with a
coordinator; its budgets and its largest packet are small, so that little is much. What is held is measured where it
lies (``really_held``), and not by the account of it. ``spending_bugs`` takes one bound away at a time, and the same
search has to notice. The integration test of the same name does it to processes, whose memory it measures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from mqtt5 import PingReqPacket, PingRespPacket

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import Door
from tests.unit.broker.really_held import Held
from tests.unit.broker.spenders import COMING, LARGEST, METADATA_MAX, PACKET_MAX, STEPS, HeldLog, Spender
from tests.unit.broker.spending_bugs import BUGS
from tocsin.broker.delivery import message_log
from tocsin.config import Budgets
from tocsin.config import Limits as Settings
from tocsin.core.budgets.budget import LASTING, SLACK, Bounds, Budget, Kind, bounds_of
from tocsin.core.budgets.stated_sum import CONNECTION_BYTES
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.commands import Limits

KIB: Final = 1 << 10
MIB: Final = 1 << 20
EXAMPLES: Final = 12  # beside those that are written down
DEADLINE_S: Final = 120.0  # what was sent may take long to work off where others work, too
SMALL: Final = Budgets(
    outbound_bytes=MIB // 4,
    commits_bytes=MIB,
    held_bytes=MIB,
    packets_bytes=MIB // 2,
    pages_bytes=MIB // 2,
    sessions_bytes=MIB,
    groups_bytes=MIB // 2,
    retained_bytes=MIB // 4,
    user_percent=50,
    client_percent=25,
)
# One client has little that is unread, and a user much: else nobody would read pages while somebody reads nothing.
BOUNDS: Final = (Bounds(64 * KIB, MIB, 2 * MIB), *bounds_of(SMALL)[1:])
SAID: Final = Limits(
    metadata_max_bytes=METADATA_MAX,
    streams_max_bytes=512 * KIB,
    streams_user_bytes=256 * KIB,
    queries_max_bytes=256 * KIB,
    told_burst_bytes=MIB,
    told_rate_bytes=MIB,
)
SPENDERS: Final = 12  # together they have what one user may have, and more than one client may
# What each connection may have beside the budgets: unread answers until it is not read any more; the first bytes of a
# packet.
EACH_BYTES: Final = {Kind.OUTBOUND: CONNECTION_BYTES + 64 * KIB, Kind.PACKETS: 4 * KIB}
REST_BYTES: Final = MIB  # objects that come with use: caches, tables that have grown
WALK_EVERY: Final = 6  # steps between two looks at everything
TICKS_LEAST: Final = 20  # of the broker between two steps …
FLOOD_TICKS: Final = 100  # … and more after a flood, which is worked off a millisecond a tick
TICK_S: Final = 0.001  # of every fourth, so that what takes time comes to pass

Step = tuple[tuple[int, int], str, int, int]  # from which spender to which, what, of which size; and a number


def share_of(kind: Kind) -> int:
    """What one user may have of a kind, with its slack. Clients without a name are one user."""
    user = BOUNDS[kind].user
    return user + user // SLACK


class Watch:
    """Holds a broker and a coordinator to the sum of their budgets."""

    def __init__(self, door: Door, held: Held) -> None:
        self._door = door
        self._held = held

    def look(self) -> None:
        """Look where each kind lies."""
        connections = len(self._door.listener._connections)
        for kind, size in self._held.by_kind().items():
            stated = share_of(kind) + connections * EACH_BYTES.get(kind, 0)
            if kind is Kind.PAGES:
                stated += share_of(Kind.GROUPS)  # groups read, too
            if kind is Kind.PACKETS:
                stated += share_of(kind)  # of those that have not said who they are
            assert size <= stated, (kind, size, stated)
        client = BOUNDS[Kind.OUTBOUND].client
        most = client + client // SLACK + EACH_BYTES[Kind.OUTBOUND]
        assert max(self._held.unread(), default=0) <= most, "one client"
        retained = SMALL.retained_bytes
        assert self._held.retained() <= retained + retained // SLACK, "retained"

    def look_at_everything(self) -> None:
        """Look at all that can be reached."""
        connections = self._held.clients()
        said = 2 * (SAID.streams_user_bytes + SAID.queries_max_bytes)  # twice: objects, beside their bytes
        assert self._held.said() <= said + MIB, "the coordinator"
        stated = sum(map(share_of, Kind)) + share_of(Kind.PACKETS) + connections * sum(EACH_BYTES.values())
        stated += SMALL.retained_bytes * 3 // 2 + 2 * said + SAID.told_burst_bytes + REST_BYTES
        total = self._held.total()
        assert total <= stated, f"everything: {total} of {stated}"


async def spend(steps: list[Step]) -> None:
    """Have the steps done, and look all the time."""
    store = MemoryStore(MemoryServer())
    async with coordinator(store, limits=SAID) as leads:
        door = Door(
            Settings(packet_max_bytes=PACKET_MAX, metadata_max_bytes=METADATA_MAX),
            store=store,
            takes_part=True,
            budget=Budget(BOUNDS),
            kernel_bytes=4_096,
        )
        door.settings = msgspec.structs.replace(door.settings, budgets=SMALL)
        async with door:
            log = HeldLog(door.parts.message_log)
            honest = await door.peer("honest")
            watch = Watch(door, Held(door, leads, log))
            spenders = [Spender(door.port, number) for number in range(SPENDERS)]
            try:
                await _do(steps, spenders, watch, log)
                log.go.set()
                async with asyncio.timeout(DEADLINE_S):  # it is served beside them
                    honest.send(PingReqPacket())
                    await honest.first(PingRespPacket)
            finally:
                log.go.set()
                for spender in spenders:
                    spender.die()
                await asyncio.sleep(0)
            await all_given_back(door)
            watch.look()


async def _do(steps: list[Step], spenders: list[Spender], watch: Watch, log: HeldLog) -> None:
    for index, ((first, last), what, size, number) in enumerate(steps):
        if what == "store":  # it answers, or hangs
            (log.go.clear if number % 2 else log.go.set)()
            continue
        for spender in spenders[first : last + 1]:
            await spender.spend(what, size, number)
        for tick in range(TICKS_LEAST + number % 40 + (FLOOD_TICKS if what == "flood" else 0)):
            await asyncio.sleep(0 if tick % 4 else TICK_S)
            watch.look()
        if index % WALK_EVERY == 0:
            watch.look_at_everything()
    watch.look_at_everything()


async def all_given_back(door: Door) -> None:
    """Return when nothing counts any more that goes with a connection."""
    figures = door.exchange.budget.figures
    passing = {Kind.OUTBOUND, Kind.PACKETS, Kind.PAGES} | LASTING
    async with asyncio.timeout(DEADLINE_S):
        while door.listener.clients > 1 or any(figures()[each].used for each in passing):
            await asyncio.sleep(0.01)


STEPS_DRAWN: Final = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 3), st.integers(0, SPENDERS - 1)),
        st.sampled_from([*STEPS, *COMING, "store"]),
        st.sampled_from([1, 5_000, LARGEST, LARGEST]),
        st.integers(0, 99),
    ),
    min_size=20,
    max_size=40,
)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and records of the log are as small as all else."""
    monkeypatch.setattr(message_log, "PAGE_BYTES", PACKET_MAX)
    monkeypatch.setattr(message_log, "RECORD_MAX_BYTES", PACKET_MAX)


ALL: Final = (0, SPENDERS - 1)
# What chance finds seldom, one for each bound: everybody does the same.
BEGINNINGS: Final[dict[str, list[Step]]] = {
    "asks for long answers": [((0, 0), "flood", LARGEST, 36)] * 8,
    "begins packets": [*[(ALL, "knock", LARGEST, 39)] * 2, (ALL, "part", LARGEST, 39)],
    "publishes on new streams": [(ALL, "publish", LARGEST, number) for number in (15, 18, 21, 27, 39)],
    "leaves wills": [((0, 0), "store", 1, 1), *[(ALL, "bequeath", LARGEST, 37)] * 4],
    "describes": [(ALL, "describe", LARGEST, number) for number in range(8)],
    "comes back to a backlog": [
        (ALL, "subscribe", 1, 36),
        *[((0, 1), "publish", LARGEST, 10)] * 8,
        (ALL, "leave", 1, 38),
        ((0, 0), "store", 1, 1),
        *[(ALL, "come_back", 1, 39)] * 2,
    ],
    "asks for what is retained": [
        *[(ALL, "publish", LARGEST, 28)] * 10,
        *[(ALL, "subscribe", LARGEST, 36)] * 3,
    ],
    "waits in a group": [(ALL, "subscribe", 1, 38), *[((0, 3), "publish", LARGEST, 10)] * 10],
}


def random_spenders(examples: int, missed: list[AssertionError] | None = None) -> Callable[[], None]:
    """The search, as a test. With ``missed`` it ends quietly when something is beyond its bound, and says what."""

    def search(steps: list[Step]) -> None:
        if missed:
            return
        try:
            asyncio.run(spend(steps))
        except AssertionError as error:
            if missed is None:
                raise
            missed.append(error)

    for steps in BEGINNINGS.values():
        search = example(steps)(search)
    searching = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    return searching(given(STEPS_DRAWN)(search))


def test_random_spenders_stay_within_the_budgets() -> None:
    random_spenders(EXAMPLES)()


@pytest.mark.slow
def test_many_random_spenders_stay_within_the_budgets() -> None:
    random_spenders(20 * EXAMPLES)()


@pytest.mark.parametrize("bug", BUGS)
def test_random_spenders_find_a_bound_that_is_missing(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    missed: list[AssertionError] = []
    seed(0)(random_spenders(EXAMPLES, missed))()
    assert missed, f"{EXAMPLES} examples did not find that {bug}"
