"""Of whom dies there is one will, whoever else fails; without any one precaution there is none, or one too many."""

from __future__ import annotations

import msgspec
import pytest
from mqtt5 import DisconnectPacket

from tests.sim.stories import Leaver, Reader, Story
from tests.sim.survival_bugs import MINUTE, SECOND, Planted, move_backups
from tocsin.broker.connection.connection import Connection
from tocsin.broker.delivery.wills import Told, WillPublisher, Wills
from tocsin.broker.survival.takeover import Takeovers
from tocsin.broker.survival.witnesses import Witnesses
from tocsin.core.machine import Effect
from tocsin.core.replication.backup import Backup
from tocsin.core.session.machine import Session
from tocsin.core.survival.detection import Hints
from tocsin.core.survival.takeover import AwaitWill
from tocsin.sim.faults.kinds import Crash, CrashTogether, Fault, LeaderLoss, Partition, Pause, Skew
from tocsin.sim.network import STORE
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.survival.programs import Mortal, Pace
from tocsin.sim.scenarios.survival.promises.bequests import WillsOnce
from tocsin.wire.internal.replication import Bequest, Update

ONCE = "a will is in the log once"
LIVING = "no will is published of a client that is known to live, or to have left in order"
BACKED = "what is acknowledged, every backup has that is not behind"
TOLD = "who dies has its will told, and nobody else"

# The brokers of both mortals are lost for long: what they left is known to backups alone.
LOST: list[Fault] = [
    Crash(at_us=5 * SECOND, for_us=25 * SECOND, node=node) for node in ("south-1", "north-2")
]
# They are frozen until others have published the wills.
FROZEN: list[Fault] = [
    Pause(at_us=5 * SECOND, for_us=20 * SECOND, node=node) for node in ("south-1", "north-2")
]
# The clocks of all brokers are ahead.
SKEWED: list[Fault] = [
    Skew(at_us=SECOND // 10, for_us=29 * SECOND, node=node, ahead_us=number * SECOND)
    for number, node in enumerate(("north-1", "north-2", "south-1", "south-2"), start=2)
]
# Again and again the store takes nothing for a while, and before it is back the mortals' brokers end.
UNWRITTEN: list[Fault] = []
for _at in range(4, 28, 8):
    UNWRITTEN.append(LeaderLoss(at_us=_at * SECOND, for_us=5 * SECOND))
    UNWRITTEN += [
        Crash(at_us=(_at + 4) * SECOND, for_us=3 * SECOND, node=node) for node in ("south-1", "north-2")
    ]
# A mortal's broker ends together with its remote backup while nobody leads. Its local backup stands in meanwhile, and
# is frozen when there is a leader again: that has one stand in that has no copy.
MEANWHILE: list[Fault] = [
    *(
        Crash(at_us=7 * SECOND, for_us=7 * SECOND, node=node)
        for node in ("south-1", "north-2", "coordinator-1", "coordinator-2")
    ),
    LeaderLoss(at_us=8 * SECOND, for_us=8 * SECOND),
    Pause(at_us=16 * SECOND + SECOND // 4, for_us=10 * SECOND, node="south-2"),
]

STORIES: dict[str, list[Fault]] = {
    "nothing fails": [],
    "their brokers end": LOST,
    "their brokers are frozen": FROZEN,
    "their brokers end with wills on their way to the log": UNWRITTEN,
    "only who stood in meanwhile has a copy": MEANWHILE,
    "a cluster ends": [CrashTogether(at_us=6 * SECOND, for_us=12 * SECOND, nodes=("south-1", "south-2"))],
    "their brokers end and are back before they are missed": [
        Crash(at_us=at * SECOND, for_us=SECOND, node=node)
        for at in range(4, 28, 3)
        for node in ("south-1", "north-2")
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_whoever_dies_has_one_will(story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is seen that there is one: who looks for nothing finds nothing wrong."""
    told: list[object] = []
    finish = WillsOnce.finish

    def look(self: WillsOnce, world: object) -> None:
        told.extend(self.told)
        finish(self, world)  # type: ignore[arg-type]

    monkeypatch.setattr(WillsOnce, "finish", look)
    for seed in range(2):
        assert run(find("survival"), seed, plan=STORIES[story]).broken is None
    assert {"emil", "gina"} & {each[0] for each in told if isinstance(each, tuple)}


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def drops_nobody(patch: pytest.MonkeyPatch) -> None:
    """A client that comes back, here or elsewhere, is taken for dead all the same."""
    patch.setattr(Wills, "came", lambda self, client, owner="", *, back: None)


def keeps_the_will(patch: pytest.MonkeyPatch) -> None:
    """A client that disconnects in order leaves its will."""
    leave = Session._leave

    def keep(self: Session, packet: DisconnectPacket) -> list[Effect]:
        will = self._will
        close = self._close

        def closing(code: int, reason: str, fault: str) -> list[Effect]:
            self._will = will
            return close(code, reason, fault)

        self._close = closing  # type: ignore[method-assign,assignment]
        return leave(self, packet)

    patch.setattr(Session, "_leave", keep)


def tells_nobody(patch: pytest.MonkeyPatch) -> None:
    """Backups are not told of wills."""
    patch.setattr(Connection, "bequest", lambda self: None)


def forgets_small_fry(patch: pytest.MonkeyPatch) -> None:
    """A backup answers for the wills of clients without subscriptions, and does not keep them."""
    on_update = Backup._on_update

    def forgetful(self: Backup, update: Update, now_us: int) -> list[Effect]:
        deltas = tuple(
            msgspec.structs.replace(each, head=msgspec.structs.replace(each.head, will=None))
            if each.head is not None and each.client in ("emil", "gina")
            else each
            for each in update.deltas
        )
        return on_update(self, msgspec.structs.replace(update, deltas=deltas), now_us)

    patch.setattr(Backup, "_on_update", forgetful)


def takes_over_no_wills(patch: pytest.MonkeyPatch) -> None:
    """A stand-in forgets the wills of the lost broker's clients."""
    carry_out = Takeovers._carry_out

    def forgetful(self: Takeovers, effect: Effect) -> None:
        if not isinstance(effect, AwaitWill):
            carry_out(self, effect)

    patch.setattr(Takeovers, "_carry_out", forgetful)


def each_its_own(patch: pytest.MonkeyPatch) -> None:
    """Each broker gives a will that it publishes an id of its own."""
    publish = WillPublisher.publish

    def own(self: WillPublisher, will: Bequest, done: Told) -> None:
        publish(self, msgspec.structs.replace(will, record_id=self._prefix()), done)

    patch.setattr(WillPublisher, "publish", own)


def settles_too_early(patch: pytest.MonkeyPatch) -> None:
    """Backups are told that a will is settled when it goes to the log, and not when it is there."""
    publish = WillPublisher.publish

    def hasty(self: WillPublisher, will: Bequest, done: Told) -> None:
        publish(self, will, lambda: None)
        done()

    patch.setattr(WillPublisher, "publish", hasty)


# ── … with backups that are moved at the wrong time

MOVED = [(0, "north-1"), (8_850_000, "north-2")]
# A mortal's broker ends, its backup is moved before anybody misses it, and it is back; or it is not.
RESTARTED_ELSEWHERE: list[Fault] = [Crash(at_us=8_600_000, for_us=9 * SECOND // 10, node="south-1")]
# For longer than copies are kept, and without a standby.
LOST_WITHOUT_COPY: list[Fault] = [
    Crash(at_us=SECOND, for_us=7 * MINUTE, node="north-spare"),
    Crash(at_us=8_600_000, for_us=5 * MINUTE, node="south-1"),
]


def missed_by_its_silence(patch: pytest.MonkeyPatch) -> None:
    """Brokers without links: nobody sees them close, so that a crash is missed more than a second later."""
    patch.setattr(Hints, "_enough", lambda self, fresh: False)


def former_backups_are_silent(patch: pytest.MonkeyPatch) -> None:
    """A backup that is one no longer does not speak when its broker begins anew."""
    missed_by_its_silence(patch)
    move_backups(patch, "south-1", MOVED)
    patch.setattr(Backup, "_give_out", lambda self, primary, copy: [])


def nobody_mourns(patch: pytest.MonkeyPatch) -> None:
    """A broker with a copy leaves its wills to the stand-in, whatever that one knows."""
    missed_by_its_silence(patch)
    move_backups(patch, "south-1", MOVED)
    patch.setattr(Backup, "_on_mourned", lambda self, primary, now_us: [])


PLANTED: dict[str, Planted] = {
    "who comes back is taken for dead": Planted(drops_nobody, LIVING),
    "a client that disconnects leaves its will": Planted(keeps_the_will, LIVING),
    "backups are not told of wills": Planted(tells_nobody, BACKED),
    "who comes back is taken for dead, and clocks differ": Planted(drops_nobody, LIVING, SKEWED),
    "backups keep no will of clients without subscriptions": Planted(forgets_small_fry, TOLD, LOST),
    "who stands in forgets wills": Planted(takes_over_no_wills, TOLD, LOST),
    "every broker has an id of its own for a will": Planted(each_its_own, ONCE, FROZEN),
    "a will is taken for settled too early": Planted(settles_too_early, TOLD, UNWRITTEN, seeds=9, shown_by=6),
    "former backups are silent": Planted(former_backups_are_silent, TOLD, RESTARTED_ELSEWHERE),
    "nobody mourns": Planted(nobody_mourns, TOLD, LOST_WITHOUT_COPY, scenario="survival-long"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    found = planted.find(monkeypatch)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant == planted.invariant


# ── a goodbye that the store did not get

# Anna leaves its broker in order while the store takes nothing: only the newest backup hears of it. Then the broker
# restarts, unmissed, and a former backup finds anna's will in its old copy.
GOODBYE = Story(
    brokers=("north-1", "south-1", "south-2"),
    programs=lambda: [Leaver("anna", ("north-1",), 6), Reader("cleo", ("south-2",), "wills/#")],
    plan=[
        LeaderLoss(at_us=5 * SECOND, for_us=5 * SECOND),
        Crash(at_us=7 * SECOND, for_us=9 * SECOND // 10, node="north-1"),
    ],
    until_us=60 * SECOND,
)
PUBLISHED = "cleo           reads: message=anna 1"


def move(patch: pytest.MonkeyPatch) -> None:
    move_backups(patch, "north-1", [(0, "south-1"), (3 * SECOND, "south-2")])


def test_a_goodbye_that_the_newest_backup_alone_knows_settles_a_will(monkeypatch: pytest.MonkeyPatch) -> None:
    move(monkeypatch)
    told = GOODBYE.told()
    assert "anna           has left" in told and PUBLISHED not in told


def test_a_backup_that_is_told_of_no_goodbye_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a will is settled is not told to the backups, but that there is none any more."""
    move(monkeypatch)
    on_update = Backup._on_update

    def deaf(self: Backup, update: Update, now_us: int) -> list[Effect]:
        deltas = tuple(msgspec.structs.replace(each, void="") for each in update.deltas)
        return on_update(self, msgspec.structs.replace(update, deltas=deltas), now_us)

    monkeypatch.setattr(Backup, "_on_update", deaf)
    assert PUBLISHED in GOODBYE.told()


def test_a_broker_that_does_not_ask_the_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with the will of an old copy looks into the store, and does not ask the others."""
    move(monkeypatch)

    async def itself(self: Witnesses, *names: str) -> bool:
        return any(map(self._sees_to, names))

    monkeypatch.setattr(Witnesses, "know_settled", itself)
    assert PUBLISHED in GOODBYE.told()


# ── a broker that is taken for lost, and goes on

# Anna stays connected to its broker, which the store does not reach for two seconds. A standby takes the place, and its
# word writes over the copy at the backup, which has anna's will by then.
CONNECTED = Story(
    brokers=("north-1", "north-spare", "south-1"),
    programs=lambda: [Reader("anna", ("north-1",), "news"), Reader("cleo", ("south-1",), "wills/#")],
    plan=[Partition(at_us=6 * SECOND, for_us=2 * SECOND, side=("north-1",), others=(STORE,))],
    until_us=30 * SECOND,
)


def test_a_client_that_stayed_connected_has_no_will_told() -> None:
    told = CONNECTED.told()
    assert "a standby takes the place" in told and PUBLISHED not in told


def test_a_broker_that_says_only_what_is_settled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says only which wills are settled."""
    monkeypatch.setattr(Backup, "sees_to", Backup.is_void)
    assert PUBLISHED in CONNECTED.told()


# ── a broker that is taken for lost, and ends


@pytest.mark.parametrize(
    "brokers",
    [
        ("north-1", "north-spare", "south-1", "south-2"),
        ("north-1", "north-2", "south-1"),
        ("north-1", "south-1"),
    ],
    ids=["a standby takes the place", "a local backup stands in", "only a remote one"],
)
def test_a_will_outlives_a_false_loss_of_its_broker(brokers: tuple[str, ...]) -> None:
    """The store does not reach its broker for two seconds. It ends meanwhile, as it is back, or a while later."""
    for at_ms in (6_800, 7_400, 8_000, 8_040, 8_120, 8_360, 8_800, 9_400):
        story = Story(
            brokers=brokers,
            programs=lambda: [
                Mortal("anna", ("north-1",), Pace(), 0, 200 * SECOND),
                Reader("cleo", ("south-1",), "wills/#"),
            ],
            plan=[
                Partition(at_us=6 * SECOND, for_us=2 * SECOND, side=("north-1",), others=(STORE,)),
                Crash(at_us=at_ms * 1_000, for_us=30 * SECOND, node="north-1"),
            ],
            until_us=60 * SECOND,
        )
        told = story.told()
        assert "stands in for a broker that is gone: broker=north-1" in told
        assert told.count(PUBLISHED.removesuffix(" 1")) == 1, f"it ends at {at_ms} ms"
