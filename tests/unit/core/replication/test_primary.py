"""What a broker tells its backups, when, and whom it keeps waiting."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tests.unit.core.replication.network import PRIMARY, State
from tocsin.core.machine import CancelTimer, Effect, Event, Received, Say, Send, SetTimer, Started, TimerFired
from tocsin.core.replication.backup import DROP_AFTER_US
from tocsin.core.replication.primary import (
    LOOK_US,
    PROBE_MAX_US,
    PROBE_US,
    RESEND_MAX_US,
    RESEND_US,
    SCAN_SLICE,
    YOUNGER_US,
    Primary,
    PrimaryTimer,
)
from tocsin.core.replication.recipient import NAMES_MAX, UPDATE_MAX_BYTES, WILL_MAX_BYTES
from tocsin.core.replication.signals import Altered, Awaited, BackupsSet, Came, Policy, Released
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import (
    Applied,
    Begun,
    Behind,
    Bequest,
    Declined,
    Delta,
    Dismiss,
    Head,
    Option,
    Positions,
    Probe,
    Replication,
    Update,
    encode_replication,
)

Kind = TypeVar("Kind")
POLICY = Policy(period_us=1_000_000, threshold=3, wait_us=300_000)


class Told:
    """A primary, its clients, and what it said."""

    def __init__(
        self, policy: Policy = POLICY, *, local: str | None = "n", remote: str | None = None
    ) -> None:
        self.state = State()
        self.machine = Primary(PRIMARY, self.state, policy)
        self.now_us = 0
        self.effects: list[Effect] = []
        self.tell(Started(incarnation=5))
        self.tell(BackupsSet(local=local, remote=remote))

    def tell(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now_us)
        self.effects += effects
        return effects

    def fire(self, name: str) -> list[Effect]:
        return self.tell(TimerFired(name=name))

    def sent(self, kind: type[Kind]) -> list[Kind]:
        """What was sent since this was asked last."""
        effects, self.effects = self.effects, []
        found = [each.message for each in effects if isinstance(each, Send)]
        return [each for each in found if isinstance(each, kind)]

    def update(self) -> Update:
        """The one that is sent now."""
        self.fire(PrimaryTimer.FLUSH)
        (update,) = self.sent(Update)
        return update

    def answer(self, update: Update, backup: str = "n") -> list[Effect]:
        return self.hear(Applied(backup, update.series, update.number))

    def hear(self, message: Replication) -> list[Effect]:
        return self.tell(Received(sender="broker/n", message=message))

    def come(self, client: str, **names: int) -> None:
        self.state.heads[client] = Head(True, expiry_s=9)
        self.state.options[client] = {name: Option(qos=qos) for name, qos in names.items()}
        self.tell(Came(client=client))

    def settled(self) -> None:
        """Everything that is known is at the backup."""
        while True:
            self.fire(PrimaryTimer.FLUSH)
            updates = self.sent(Update)
            if not updates:
                return
            for update in updates:
                self.answer(update, "n" if update.role == "local" else "s")


def released(effects: list[Effect]) -> list[Released]:
    return [each for each in effects if isinstance(each, Released)]


def test_without_backups_nothing_is_said_and_no_timer_runs() -> None:
    told = Told(local=None)
    told.come("a", x=1)
    assert told.tell(Awaited(client="a", ticket=1)) == [Released(tickets=(1,), synced=True)]
    assert [each for each in told.effects if not isinstance(each, Released)] == []


def test_a_series_begins_with_everything_and_goes_on_with_what_changed() -> None:
    told = Told()
    told.come("a", x=1, y=0)
    first = told.update()
    assert (first.series, first.number, first.role, first.whole) == ((0, 5, 1), 1, "local", True)
    (delta,) = first.deltas
    assert delta.begin and delta.head == Head(True, expiry_s=9)
    assert dict(delta.subscriptions) == {"x": Option(qos=1), "y": Option()}
    told.answer(first)
    del told.state.options["a"]["x"]
    told.tell(Altered(client="a", names=("x",)))
    told.state.options["a"]["z"] = Option(qos=2)
    told.tell(Altered(client="a", names=("z",)))
    second = told.update()
    assert (second.number, second.whole) == (2, False)
    assert second.deltas == (Delta("a", subscriptions=(("x", None), ("z", Option(qos=2)))),)
    told.answer(second)
    del told.state.heads["a"]
    told.tell(Altered(client="a"))
    assert told.update().deltas == (Delta("a", gone=True),)


def test_changes_during_an_update_become_one_delta_of_the_next() -> None:
    told = Told()
    told.come("a")
    first = told.update()
    for number in range(50):
        told.state.options["a"][f"t{number % 5}"] = Option(since=number)
        told.tell(Altered(client="a", names=(f"t{number % 5}",)))
    told.fire(PrimaryTimer.FLUSH)
    assert told.sent(Update) == []
    told.answer(first)
    (second,) = told.sent(Update)
    (delta,) = second.deltas
    assert dict(delta.subscriptions) == {f"t{number % 5}": Option(since=number) for number in range(45, 50)}


def test_an_update_is_bounded_and_a_large_client_is_split() -> None:
    told = Told()
    told.come("a")
    told.state.options["a"] = {f"{number:0>200}": Option() for number in range(2_000)}
    known: dict[str, Option | None] = {}
    updates = 0
    told.fire(PrimaryTimer.FLUSH)
    while sent := told.sent(Update):
        (update,) = sent
        updates += 1
        assert len(encode_replication("p", "", update)) < UPDATE_MAX_BYTES * 1.1
        known.update(pair for delta in update.deltas for pair in delta.subscriptions)
        if not update.whole:
            assert len(known) < 2_000
        told.answer(update)
    assert known == told.state.options["a"] and updates > 3


def test_too_many_changes_of_one_client_become_all_of_it() -> None:
    told = Told()
    told.come("a", x=1)
    told.settled()
    told.tell(Altered(client="a", names=tuple(map(str, range(NAMES_MAX + 1)))))
    (delta,) = told.update().deltas
    assert delta.begin and dict(delta.subscriptions) == {"x": Option(qos=1)}


def test_a_will_that_is_too_large_is_left_out_and_counted() -> None:
    told = Told()
    properties = tuple((str(number), "x" * 1_000) for number in range(WILL_MAX_BYTES // 1_000 + 1))
    will = Bequest(Publication("t", b"", 0, "a", user_properties=properties))
    told.state.heads["a"] = Head(True, owner="u", will=will)
    told.tell(Came(client="a"))
    (delta,) = told.update().deltas
    assert delta.head == Head(True, owner="u")
    assert told.machine.statistics()["replication_wills_left_out"] == 1


def test_an_update_is_repeated_ever_more_seldom_until_it_is_answered() -> None:
    told = Told()
    told.come("a")
    update = told.update()
    delays = []
    for _ in range(8):
        effects = told.fire(PrimaryTimer.RESEND_LOCAL)
        assert told.sent(Update) == [update]
        delays += [each.delay_us for each in effects if isinstance(each, SetTimer)]
    assert delays[0] == 2 * RESEND_US and delays[-1] == RESEND_MAX_US
    assert CancelTimer(name=PrimaryTimer.RESEND_LOCAL) in told.answer(update)


def test_who_waits_is_released_when_both_have_it() -> None:
    told = Told(remote="s")
    told.come("a")
    told.tell(Awaited(client="a", ticket=1))
    told.fire(PrimaryTimer.FLUSH)
    to_local, to_remote = told.sent(Update)
    assert released(told.answer(to_local)) == []
    assert released(told.answer(to_local)) == []  # a repeated answer counts once
    assert released(told.answer(to_remote, "s")) == [Released(tickets=(1,), synced=True)]


def test_an_answer_to_an_earlier_update_does_not_release_a_waiter() -> None:
    told = Told()
    told.come("a")
    first = told.update()
    told.state.options["a"]["x"] = Option()
    told.tell(Altered(client="a", names=("x",)))
    told.tell(Awaited(client="a", ticket=1))
    assert released(told.answer(first)) == []
    (second,) = told.sent(Update)
    assert released(told.answer(second)) == [Released(tickets=(1,), synced=True)]
    assert released(told.tell(Awaited(client="a", ticket=2))) == [Released(tickets=(2,), synced=True)]


def test_nobody_waits_for_a_late_backup_until_it_has_caught_up() -> None:
    told = Told(remote="s")
    told.settled()
    told.come("a")
    told.tell(Awaited(client="a", ticket=1))
    told.fire(PrimaryTimer.FLUSH)
    to_local, _ = told.sent(Update)
    told.answer(to_local)
    told.now_us = POLICY.wait_us
    effects = told.fire(PrimaryTimer.WAIT)
    assert released(effects) == [Released(tickets=(1,), synced=False)]
    assert [each.level for each in effects if isinstance(each, Say)] == ["warning"]
    assert told.machine.problems() == ["remote backup s"]
    assert (
        told.machine.statistics()["backups_degraded"]
        == told.machine.statistics()["replication_waits_missed"]
        == 1
    )
    told.state.options["a"]["x"] = Option()
    told.tell(Altered(client="a", names=("x",)))
    told.tell(Awaited(client="a", ticket=2))
    (update,) = told.fire(PrimaryTimer.FLUSH)[:1]
    assert isinstance(update, Send) and isinstance(update.message, Update)
    assert released(told.answer(update.message)) == [Released(tickets=(2,), synced=False)]
    told.fire(PrimaryTimer.RESEND_REMOTE)
    while late := told.sent(Update):
        told.answer(late[-1], "s")
    assert told.machine.problems() == []


def test_a_silent_backup_is_found_though_nothing_happens() -> None:
    told = Told()
    told.settled()
    told.fire(PrimaryTimer.PROBE)
    (probe,) = told.sent(Probe)
    told.hear(Applied("n", probe.series, probe.number))
    told.fire(PrimaryTimer.PROBE)
    told.now_us += POLICY.wait_us
    assert told.machine.problems() == []
    told.fire(PrimaryTimer.PROBE)
    assert told.machine.problems() == ["local backup n"]
    told.hear(Applied("n", probe.series, probe.number))
    assert told.machine.problems() == []


def probed(told: Told) -> int:
    """A probe is sent and answered; when the next one is."""
    told.fire(PrimaryTimer.PROBE)
    (probe,) = told.sent(Probe)
    effects = told.hear(Applied("n", probe.series, probe.number))
    (timer,) = (each for each in effects if isinstance(each, SetTimer))
    assert timer.name == PrimaryTimer.PROBE
    return timer.delay_us


def test_a_backup_that_has_everything_is_probed_more_and_more_seldom() -> None:
    told = Told()
    told.settled()
    pauses = [probed(told) for _ in range(6)]
    assert pauses == [2 * PROBE_US, 4 * PROBE_US, 8 * PROBE_US, *(PROBE_MAX_US,) * 3]
    assert SetTimer(name=PrimaryTimer.PROBE, delay_us=PROBE_US) in told.fire(PrimaryTimer.PROBE)


def test_a_backup_that_begins_is_probed_at_once() -> None:
    told = Told()
    told.settled()
    for _ in range(6):
        probed(told)
    effects = told.hear(Begun("n", 9))
    assert len(told.sent(Probe)) == 1
    assert SetTimer(name=PrimaryTimer.PROBE, delay_us=PROBE_US) in effects
    assert told.hear(Begun("somebody else", 9)) == []


def test_a_backup_with_a_gap_gets_everything_and_waiters_go_first() -> None:
    told = Told()
    for client in "abc":
        told.come(client)
    told.settled()
    told.state.options["c"]["x"] = Option()
    told.tell(Altered(client="c", names=("x",)))
    told.tell(Awaited(client="c", ticket=1))
    update = told.update()
    told.hear(Behind("n", update.series))
    told.hear(Behind("n", update.series))
    (anew,) = told.sent(Update)
    assert anew.series > update.series and anew.number == 1
    assert [(each.client, each.begin) for each in anew.deltas] == [("c", True), ("a", True), ("b", True)]
    assert released(told.answer(update)) == []
    assert released(told.answer(anew)) == [Released(tickets=(1,), synced=True)]
    assert told.machine.statistics()["replication_resyncs"] == 1


def test_a_backup_that_knows_a_younger_process_is_updated_again_later() -> None:
    told = Told()
    told.come("a")
    update = told.update()
    effects = told.hear(Declined("n", update.series, (3, 9, 4)))
    assert SetTimer(name=PrimaryTimer.RESEND_LOCAL, delay_us=YOUNGER_US) in effects
    assert told.machine.problems() == ["local backup n"]
    told.come("b")
    told.fire(PrimaryTimer.FLUSH)
    assert told.sent(Update) == []
    told.fire(PrimaryTimer.RESEND_LOCAL)
    (anew,) = told.sent(Update)
    assert anew.series[:2] == (3, 10) and len(anew.deltas) == 2


def test_a_plan_that_is_repeated_changes_nothing_and_another_dismisses() -> None:
    told = Told(remote="s")
    told.settled()
    assert told.tell(BackupsSet(local="n", remote="s", epoch=2)) == []
    told.effects = []
    told.tell(BackupsSet(local="m", remote="s", epoch=3))
    (dismissed,) = told.sent(Dismiss)
    assert dismissed.series == (0, 5, 1)
    assert told.update().series[0] == 3
    effects = told.tell(BackupsSet(local=None, remote=None, epoch=4))
    assert {each.name for each in effects if isinstance(each, CancelTimer)} >= {
        PrimaryTimer.SCAN,
        PrimaryTimer.PROBE,
    }
    assert len(told.sent(Dismiss)) == 2


def moved(told: Told, *clients: str) -> None:
    for client in clients:
        at = told.state.at.get(client, Positions())
        told.state.at[client] = msgspec.structs.replace(at, messages=at.messages + 1)


def test_positions_go_with_every_period() -> None:
    told = Told()
    told.come("a")
    told.come("b")
    told.settled()
    moved(told, "a")
    assert SetTimer(name=PrimaryTimer.SCAN, delay_us=POLICY.period_us) in told.fire(PrimaryTimer.SCAN)
    assert told.machine.statistics()["positions_out_of_sync"] == 1
    update = told.update()
    assert update.deltas == (Delta("a", positions=Positions(1)),)
    assert told.machine.statistics()["positions_out_of_sync"] == 1
    told.answer(update)
    assert told.machine.statistics()["positions_out_of_sync"] == 0
    told.fire(PrimaryTimer.SCAN)
    told.fire(PrimaryTimer.FLUSH)
    assert told.sent(Update) == []


def test_by_threshold_positions_go_when_enough_differ() -> None:
    told = Told(msgspec.structs.replace(POLICY, mode="threshold"))
    for client in "abc":
        told.come(client)
    told.settled()
    moved(told, "a", "b")
    effects = told.fire(PrimaryTimer.SCAN)
    assert [each.delay_us for each in effects if isinstance(each, SetTimer)] == [LOOK_US]
    assert told.machine.statistics()["positions_out_of_sync"] == 2
    told.fire(PrimaryTimer.FLUSH)
    assert told.sent(Update) == []
    moved(told, "b", "c")
    told.fire(PrimaryTimer.SCAN)
    assert {each.client: each.positions for each in told.update().deltas} == {
        "a": Positions(1),
        "b": Positions(2),
        "c": Positions(1),
    }


def test_by_threshold_positions_go_when_the_volume_is_enough() -> None:
    """The bytes that clients were sent count, however few clients they are."""
    policy = msgspec.structs.replace(POLICY, mode="threshold", threshold=0, threshold_bytes=1_000)
    told = Told(policy)
    for client in "ab":
        told.come(client)
    told.settled()
    moved(told, "a", "b")
    told.state.volumes.update(a=400, b=500)
    told.fire(PrimaryTimer.SCAN)
    told.fire(PrimaryTimer.FLUSH)
    assert told.sent(Update) == []
    assert told.machine.statistics()["volume_out_of_sync"] == 900
    told.state.volumes["a"] += 100
    told.fire(PrimaryTimer.SCAN)
    assert {each.client for each in told.update().deltas} == {"a", "b"}
    moved(told, "a")
    told.state.volumes["a"] = 300  # on another connection
    told.fire(PrimaryTimer.SCAN)
    assert told.machine.statistics()["volume_out_of_sync"] == 300


def test_many_clients_are_looked_at_a_slice_at_a_time() -> None:
    told = Told()
    for number in range(SCAN_SLICE + 1):
        told.state.heads[f"c{number}"] = Head(True)
        told.state.options[f"c{number}"] = {}
        moved(told, f"c{number}")
    told.fire(PrimaryTimer.SCAN)
    assert told.machine.statistics()["positions_out_of_sync"] == SCAN_SLICE
    told.fire(PrimaryTimer.SCAN)
    assert len(told.machine._scan.told) == SCAN_SLICE + 1
    for client in tuple(told.state.heads):
        del told.state.heads[client]
        told.tell(Altered(client=client))
    assert told.machine._scan.told == {}, "nothing is remembered of who is gone"


def test_a_backup_that_keeps_up_under_constant_change_is_not_degraded() -> None:
    told = Told()
    told.come("a")
    told.settled()
    told.tell(Altered(client="a"))
    late = told.update()
    told.now_us += POLICY.wait_us
    told.fire(PrimaryTimer.RESEND_LOCAL)
    assert told.machine.problems() == ["local backup n"]
    told.tell(Altered(client="a"))
    told.answer(late)
    assert told.machine.problems() == ["local backup n"], "that came too late"
    for _ in range(2):  # while an update is under way there is something for the next one
        told.tell(Altered(client="a"))
        update = told.sent(Update)[-1]
        told.answer(update)
    assert told.machine.problems() == []
    assert told.machine.statistics()["backups_behind"] == 1


# ── beginning, and wills that are settled ───────────────────────────────────────────────────────────────────


def begun(effects: list[Effect]) -> list[tuple[str, int]]:
    return [
        (each.to, each.message.incarnation)
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, Begun)
    ]


def test_a_starting_process_tells_all_while_former_backups_keep_copies() -> None:
    machine = Primary(PRIMARY, State(), POLICY, ("x", PRIMARY, "y"))
    effects = machine.handle(Started(incarnation=5), 0)
    said = waited_us = 0
    while timers := [
        each for each in effects if isinstance(each, SetTimer) and each.name == PrimaryTimer.BEGUN
    ]:
        assert begun(effects) == [("broker/x", 5), ("broker/y", 5)]
        said, waited_us = said + 1, waited_us + timers[0].delay_us
        effects = machine.handle(TimerFired(name=PrimaryTimer.BEGUN), waited_us)
    assert said == 6 and waited_us >= DROP_AFTER_US


def test_a_process_whose_clock_is_behind_begins_as_a_younger_one() -> None:
    machine = Primary(PRIMARY, State(), POLICY, ("x",))
    machine.handle(Started(incarnation=5), 0)
    declined = Declined("x", (0, 5, 0), (0, 9, 3))
    effects = machine.handle(Received(sender="broker/x", message=declined), 1)
    assert begun(effects) == [("broker/x", 10)]
    assert begun(machine.handle(Received(sender="broker/x", message=declined), 2)) == []


def test_a_settled_will_is_reported_even_for_an_unknown_client() -> None:
    told = Told()
    told.answer(told.update())
    told.state.voids["a"] = "a.will"
    told.tell(Altered(client="a"))
    assert [(each.client, each.gone, each.void) for each in told.update().deltas] == [("a", True, "a.will")]
    told.tell(BackupsSet(local="m", remote=None))
    assert [(each.client, each.void) for each in told.update().deltas] == [("a", "a.will")], (
        "a new backup, too"
    )
