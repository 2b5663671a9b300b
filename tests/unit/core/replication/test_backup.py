"""What a backup keeps, answers, prepares and drops."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core.machine import Effect, Received, Send, SetTimer, TimerFired
from tocsin.core.replication import backup as module
from tocsin.core.replication.backup import DROP_AFTER_US, Backup, BackupTimer
from tocsin.core.replication.signals import Forgotten, Kept, Prepare, PrimariesSet, Unprepare, WillsLeft
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
    Mourned,
    Option,
    Positions,
    Probe,
    Replication,
    Role,
    Series,
    Update,
)

FIRST: Series = (0, 1, 1)
HEAD = Head(True)
NEAR = "$channel/Near/5"


class Backing:
    def __init__(self, *, copies_max: int = 4, bytes_max: int = 1 << 20) -> None:
        self.machine = Backup("n", copies_max=copies_max, bytes_max=bytes_max)
        self.now_us = 0

    def hear(self, message: Replication) -> list[Effect]:
        return self.machine.handle(Received(sender="broker/p", message=message), self.now_us)

    def update(
        self,
        number: int,
        *deltas: Delta,
        series: Series = FIRST,
        role: Role = "local",
        whole: bool = False,
        primary: str = "p",
    ) -> list[Effect]:
        return self.hear(Update(primary, role, series, number, deltas, whole))

    def clients(self) -> set[str]:
        return {each.client for each in self.machine.take_over("p")}


def begin(client: str, *names: str, positions: Positions | None = None) -> Delta:
    return Delta(client, True, False, HEAD, tuple((name, Option()) for name in names), positions)


def answers(effects: list[Effect]) -> list[object]:
    return [each.message for each in effects if isinstance(each, Send)]


def test_a_copy_tells_when_its_client_was_last_heard() -> None:
    backing = Backing()

    def since(number: int, at_us: int, delta: Delta) -> int:
        backing.now_us = at_us
        backing.update(number, delta)
        (standing,) = backing.machine.take_over("p")
        return standing.since_us

    assert since(1, 10, begin("a", "x")) == 10
    assert since(2, 20, Delta("a", positions=Positions(7))) == 10, "as before"
    assert since(3, 30, Delta("a", head=Head(False))) == 10
    assert since(4, 40, Delta("a", head=HEAD)) == 40, "it is back"
    assert since(5, 50, begin("a")) == 40, "said once more"
    assert since(6, 60, Delta("a", begin=True, head=Head(True, epoch=2))) == 60, "it came anew"


@pytest.mark.parametrize("process", [1, 2])
def test_a_backup_awaits_the_clients_present_at_takeover_not_later_ones(process: int) -> None:
    willing = Head(True, will=Bequest(Publication("gone", b"x", 1, "c")))
    backing, went_on = Backing(), (0, process, 2)
    backing.update(1, Delta("a", begin=True, head=willing), whole=True)
    backing.now_us = 1
    backing.machine.handle(Kept(primary="p"), 1)
    backing.now_us = 2
    both = [Delta(client, begin=True, head=willing) for client in "ab"[process - 1 :]]
    assert wills(backing.update(1, *both, series=went_on, whole=True)) == []
    assert wills(backing.update(1, series=(0, 3, 1), whole=True)) == ["b"]


def test_only_the_process_taken_for_lost_settles_its_wills() -> None:
    willing = Head(True, will=Bequest(Publication("gone", b"x", 1, "c")))

    def settled(backing: Backing) -> set[str]:
        return {client for client in "abcd" if backing.machine.settled("p", client)}

    backing = Backing()
    backing.update(1, *(Delta(client, begin=True, head=willing) for client in "abcd"), whole=True)
    backing.update(2, Delta("a", head=HEAD))
    assert settled(backing) == set(), "nobody stands in for it"
    backing.machine.handle(Kept(primary="p"), 0)
    backing.update(3, Delta("b", head=HEAD), Delta("c", positions=Positions(7)))
    assert settled(backing) == {"b"}
    backing.update(4, Delta("c", gone=True))
    backing.machine.handle(Kept(primary="p"), 0)
    assert settled(backing) == {"b", "c"}, "as before, if it is lost once more"
    backing.update(1, series=(0, 1, 2), whole=True)
    assert settled(backing) == {"a", "b", "c", "d"}, "all of them are gone"
    backing.update(2, Delta("d", begin=True, head=willing), series=(0, 1, 2))
    assert settled(backing) == {"a", "b", "c"}, "it came again, with another will"
    backing.machine.handle(Forgotten(primary="p"), 0)
    backing.update(3, *(Delta(client, begin=True, head=willing) for client in "ab"), series=(0, 1, 2))
    backing.machine.handle(Kept(primary="p"), 0)
    backing.update(1, Delta("a", begin=True, head=HEAD), series=(0, 2, 1), whole=True)
    assert settled(backing) == {"c"}, "another process knows nothing of those before it"


def test_an_update_is_applied_and_answered_unless_one_before_it_is_missing() -> None:
    backing = Backing()
    assert answers(backing.update(1, begin("a", "x", positions=Positions(7)))) == [Applied("n", FIRST, 1)]
    (standing,) = backing.machine.take_over("p")
    assert (standing.client, standing.head, set(standing.subscriptions)) == ("a", HEAD, {"x"})
    assert standing.positions == Positions(7)
    assert answers(backing.update(3, begin("b"))) == [Behind("n", FIRST)]
    assert answers(backing.update(2, Delta("unheard", subscriptions=(("x", Option()),)))) == [
        Behind("n", FIRST)
    ]
    assert backing.clients() == {"a"}


def test_the_middle_of_a_series_that_is_not_known_is_not_taken() -> None:
    backing = Backing()
    assert answers(backing.update(2, begin("a"))) == [Behind("n", FIRST)]
    assert backing.machine.copies == {}
    assert answers(backing.hear(Probe("p", FIRST, 1))) == [Behind("n", FIRST)]


def test_a_newer_replication_run_replaces_the_copy_and_drops_the_rest() -> None:
    backing = Backing()
    backing.update(1, begin("a", "x"), begin("b"), whole=True)
    newer = (0, 1, 2)
    backing.update(1, begin("a", "y"), series=newer)
    assert backing.clients() == {"a", "b"}
    backing.update(2, begin("c"), series=newer, whole=True)
    assert backing.clients() == {"a", "c"}
    subscriptions = {each.client: set(each.subscriptions) for each in backing.machine.take_over("p")}
    assert subscriptions["a"] == {"y"}


def test_an_older_series_is_declined() -> None:
    backing = Backing()
    backing.update(1, begin("a"), series=(1, 0, 0))
    for message in (Update("p", "local", (0, 9, 9), 1, ()), Probe("p", (0, 9, 9), 1)):
        assert answers(backing.hear(message)) == [Declined("n", (0, 9, 9), (1, 0, 0))]
    assert backing.machine.statistics()["copies_declined"] == 2


def test_a_probe_is_answered_by_how_far_the_copy_is() -> None:
    backing = Backing()
    backing.update(1, begin("a"))
    assert answers(backing.hear(Probe("p", FIRST, 1))) == [Applied("n", FIRST, 1)]
    assert answers(backing.hear(Probe("p", FIRST, 2))) == [Behind("n", FIRST)]


def test_channels_are_prepared_with_the_first_client_and_released_with_the_last() -> None:
    backing = Backing()
    effects = backing.update(1, begin("a", NEAR, "x"), begin("b", NEAR))
    assert effects[0] == Prepare(primary="p", names=(NEAR,))
    assert len(backing.update(2, Delta("a", gone=True))) == 1
    assert backing.update(3, Delta("b", subscriptions=((NEAR, None),)))[0] == Unprepare(
        primary="p", names=(NEAR,)
    )


def test_channels_are_prepared_in_one_order_whatever_process_it_is() -> None:
    names = [f"$channel/Near/{number}" for number in range(20)]
    (prepare, _) = Backing().update(1, begin("a", *reversed(names)))
    assert prepare == Prepare(primary="p", names=tuple(sorted(names)))


def test_a_remote_backup_prepares_nothing_and_a_change_of_the_role_shows() -> None:
    backing = Backing()
    assert len(backing.update(1, begin("a", NEAR), role="remote")) == 1
    assert backing.update(1, begin("a", NEAR), series=(0, 1, 2))[0] == Prepare(primary="p", names=(NEAR,))
    effects = backing.update(1, begin("a", NEAR), series=(0, 1, 3), role="remote")
    assert effects[0] == Unprepare(primary="p", names=(NEAR,))


def test_a_copy_is_dropped_some_time_after_nobody_needs_it() -> None:
    backing = Backing()
    backing.update(1, begin("a", NEAR))
    assert backing.hear(Dismiss("p", (0, 0, 1))) == [], "an older word than the copy"
    assert backing.hear(Dismiss("p", FIRST)) == [SetTimer(name=BackupTimer.DROP, delay_us=DROP_AFTER_US)]
    backing.now_us = DROP_AFTER_US - 1
    (again,) = backing.machine.handle(TimerFired(name=BackupTimer.DROP), backing.now_us)
    assert again == SetTimer(name=BackupTimer.DROP, delay_us=1) and backing.clients() == {"a"}
    backing.now_us += 1
    assert backing.machine.handle(TimerFired(name=BackupTimer.DROP), backing.now_us) == [
        Unprepare(primary="p", names=(NEAR,))
    ]
    assert backing.clients() == set() and backing.machine.statistics()["copied_bytes"] == 0


def test_a_copy_lasts_while_its_broker_lives_even_without_a_plan() -> None:
    backing = Backing()
    backing.machine.handle(PrimariesSet(primaries=()), 0)
    backing.update(1, begin("a"))
    for number, heard in ((2, "update"), (2, "probe")):
        backing.now_us += DROP_AFTER_US - 1
        if heard == "update":
            backing.update(number, begin("b"))
        else:
            backing.hear(Probe("p", FIRST, number))
        backing.machine.handle(TimerFired(name=BackupTimer.DROP), backing.now_us + 2)
        assert backing.clients() == {"a", "b"}, heard
    backing.machine.handle(TimerFired(name=BackupTimer.DROP), backing.now_us + DROP_AFTER_US)
    assert backing.clients() == set(), "nothing more was heard"


def test_a_copy_is_kept_while_this_broker_stands_in() -> None:
    backing = Backing()
    backing.update(1, begin("a"))
    backing.machine.handle(Kept(primary="p"), 0)
    backing.machine.handle(PrimariesSet(primaries=()), 0)
    assert backing.machine.handle(TimerFired(name=BackupTimer.DROP), DROP_AFTER_US) == []
    assert backing.clients() == {"a"}
    backing.machine.handle(Forgotten(primary="p"), DROP_AFTER_US)
    backing.machine.handle(TimerFired(name=BackupTimer.DROP), 2 * DROP_AFTER_US)
    assert backing.clients() == set()
    assert backing.machine.handle(Forgotten(primary="p"), 0) == []


def test_there_is_room_for_so_many_copies_and_so_much() -> None:
    backing = Backing(copies_max=1)
    backing.update(1, begin("a"))
    assert answers(backing.update(1, begin("a"), primary="q")) == [Declined("n", FIRST)]
    small = Backing(bytes_max=100)
    assert answers(small.update(1, begin("a"))) == [Applied("n", FIRST, 1)]
    assert answers(small.update(2, begin("b"))) == [Declined("n", FIRST)]
    assert answers(small.update(2, Delta("a", gone=True))) == [Declined("n", FIRST)]


def test_what_is_counted_is_what_is_kept() -> None:
    backing = Backing()
    will = Bequest(Publication("t", b"x" * 500, 0, "a"))
    backing.update(1, begin("a", "x", "y"), begin("b", "z"), whole=True)
    without = backing.machine.statistics()["copied_bytes"]
    backing.update(2, Delta("a", head=Head(True, will=will)))
    figures = backing.machine.statistics()
    assert figures["copied_bytes"] == without + 501
    assert (figures["copies"], figures["copies_whole"]) == (1, 1)
    assert (figures["copied_clients"], figures["copied_subscriptions"]) == (2, 3)
    backing.update(3, Delta("a", gone=True), Delta("b", gone=True))
    assert backing.machine.statistics()["copied_bytes"] == 0


RESTARTED: Series = (0, 2, 1)


def willed(client: str, qos: int = 1) -> Delta:
    will = Bequest(Publication("gone", b"x", qos, "a"))
    return Delta(client, True, False, Head(True, will=will))


def wills(effects: list[Effect]) -> list[str]:
    return [left.client for each in effects if isinstance(each, WillsLeft) for left in each.wills]


def test_the_wills_of_clients_that_a_restarted_broker_has_not_are_left() -> None:
    backing = Backing()
    backing.update(1, willed("lost"), willed("back"), begin("no will"), whole=True)
    assert wills(backing.update(1, willed("back"), series=RESTARTED)) == []
    assert wills(backing.update(2, series=RESTARTED, whole=True)) == ["lost"]
    assert wills(backing.update(1, series=(0, 3, 1), whole=True)) == ["back"]


def test_a_series_that_the_same_process_begins_anew_leaves_none() -> None:
    backing = Backing()
    backing.update(1, willed("a"), whole=True)
    assert wills(backing.update(1, series=(0, 1, 2), whole=True)) == []


def test_a_remote_backup_leaves_qos_0_wills_to_the_local_one() -> None:
    for sole in (False, True):
        backing = Backing()
        backing.update(1, willed("a", qos=0), willed("b"), role="remote", whole=True)
        update = Update("p", "remote", RESTARTED, 1, (), True, sole)
        assert wills(backing.hear(update)) == (["a", "b"] if sole else ["b"])


def test_a_broker_that_was_stood_in_for_does_not_leave_wills_twice() -> None:
    backing = Backing()
    backing.update(1, willed("a"), whole=True)
    backing.machine.handle(Kept(primary="p"), 0)
    backing.machine.handle(Forgotten(primary="p"), 0)
    assert wills(backing.update(1, willed("b"), series=RESTARTED, whole=True)) == []
    assert wills(backing.update(1, series=(0, 3, 1), whole=True)) == ["b"]


@pytest.mark.parametrize("sign", ["update", "probe", "none", "while it stands in", "beginning"])
def test_wills_of_a_falsely_lost_broker_are_left_at_its_restart(
    sign: str,
) -> None:
    backing = Backing()
    backing.update(1, willed("a"), whole=True)
    backing.machine.handle(Kept(primary="p"), 0)
    if sign != "while it stands in":
        backing.machine.handle(Forgotten(primary="p"), 0)
    if sign in ("update", "while it stands in"):
        backing.update(2, willed("b"))
    elif sign == "probe":
        backing.hear(Probe("p", FIRST, 1))
    elif sign == "beginning":  # of another process, which says nothing of the one before
        backing.update(1, willed("b"), series=RESTARTED)
        backing.update(2, series=RESTARTED)
        assert wills(backing.update(3, series=RESTARTED, whole=True)) == []
        return
    expected = {"update": ["a", "b"], "probe": ["a"]}.get(sign, [])
    assert wills(backing.update(1, series=RESTARTED, whole=True)) == expected


@pytest.mark.parametrize("sign", ["update", "probe", "another process", "none", "beginning"])
def test_a_copy_from_before_a_loss_is_silent_until_its_broker_reports(
    sign: str,
) -> None:
    backing = Backing()
    away = Delta("away", True, False, Head(False))
    backing.update(1, begin("a"), away, whole=True)
    assert (backing.machine.has("p", "a"), backing.machine.has("p", "away")) == (True, False)
    backing.machine.handle(Kept(primary="p"), 0)
    backing.machine.handle(Forgotten(primary="p"), 0)
    match sign:
        case "update":
            backing.update(2, begin("b"))
        case "probe":
            backing.hear(Probe("p", FIRST, 1))
        case "another process":
            backing.update(1, begin("b"), series=RESTARTED, whole=True)
        case "beginning":
            backing.update(1, begin("b"), series=RESTARTED)
    expected = {"update": True, "probe": True, "another process": False}.get(sign)
    assert backing.machine.has("p", "a") is expected
    back = sign in ("update", "probe")
    assert backing.machine.has("p", "away") is back, "the process that was not dead knows best"
    assert backing.machine.has("q", "a") is False


def test_a_falsely_lost_broker_keeps_its_departed_clients_until_it_restarts() -> None:
    backing = Backing()
    backing.update(1, willed("a"), whole=True)
    backing.machine.handle(Kept(primary="p"), 0)
    backing.machine.handle(Forgotten(primary="p"), 0)
    backing.update(2, Delta("a", gone=True))
    assert backing.machine.has("p", "a") is True
    backing.update(1, begin("b"), series=RESTARTED, whole=True)
    assert backing.machine.has("p", "a") is False


# ── former backups, and wills that are settled ──────────────────────────────────────────────────────────────


def willing(topic: str = "gone", qos: int = 1) -> Head:
    return Head(True, will=Bequest(Publication(topic, b"x", qos, "c"), record_id=f"{topic}.will"))


def former(*, role: Role = "local") -> Backing:
    """One that knows the wills of two clients, and is no backup any more."""
    backing = Backing()
    deltas = (Delta("a", begin=True, head=willing("a")), Delta("b", begin=True, head=willing("b", qos=0)))
    backing.update(1, *deltas, whole=True, role=role)
    backing.machine.handle(PrimariesSet(primaries=()), 0)
    return backing


def test_a_former_backup_gives_out_known_wills_when_its_broker_restarts() -> None:
    backing = former()
    assert wills(backing.hear(Begun("p", 1))) == [], "that is the process that it knows"
    assert wills(backing.hear(Begun("p", 2))) == ["a"], "one at QoS 0 could be heard twice"
    assert backing.clients() == set(), "and is not asked for them again"
    assert wills(backing.hear(Begun("p", 2))) == []


def test_a_backup_waits_for_the_series_of_the_process_that_began() -> None:
    backing = Backing()
    backing.machine.handle(PrimariesSet(primaries=("p",)), 0)
    backing.update(1, Delta("a", begin=True, head=willing("a")), whole=True)
    assert wills(backing.hear(Begun("p", 2))) == []
    assert wills(backing.machine.handle(PrimariesSet(primaries=()), 0)) == ["a"], "or is told that none comes"


def test_a_live_processs_copy_is_kept_although_a_replacement_began_later() -> None:
    backing = Backing()
    backing.machine.handle(PrimariesSet(primaries=()), 0)
    backing.hear(Begun("p", 2))  # a standby, which gives the place back
    assert wills(backing.update(1, Delta("a", begin=True, head=willing("a")), whole=True)) == []
    assert backing.clients() == {"a"}


def test_a_copy_that_has_given_out_its_wills_is_not_in_step() -> None:
    """The process that was taken for over may go on: it says everything once more."""
    backing = former()
    assert wills(backing.hear(Begun("p", 2))) == ["a"]
    assert answers(backing.hear(Probe("p", FIRST, 1))) == [Behind("n", FIRST)]
    assert answers(backing.update(2, Delta("a", positions=Positions(7)))) == [Behind("n", FIRST)]


def test_who_stands_in_has_the_wills_in_hand_already() -> None:
    backing = former()
    backing.machine.handle(Kept(primary="p"), 0)
    assert wills(backing.hear(Begun("p", 2))) == []


def test_a_process_whose_clock_is_behind_is_told_so() -> None:
    backing = former()
    assert answers(backing.hear(Begun("p", 0))) == [Declined("n", (0, 0, 0), FIRST)]


def test_a_will_that_is_settled_is_remembered_when_the_copy_is_another() -> None:
    backing = Backing()
    backing.update(1, Delta("a", begin=True, head=willing("a")), whole=True)
    assert not backing.machine.is_void("a.will")
    backing.update(2, Delta("a", gone=True, void="a.will"))
    backing.update(1, series=(0, 2, 1), whole=True)
    assert backing.machine.is_void("a.will")


def test_a_broker_that_took_a_session_settles_wills_of_earlier_epochs() -> None:
    backup, left = Backup("n"), Bequest(Publication("a", b"", 1, "c"), session="uid", epoch=3)
    backup.note_taken("uid", 3)
    assert not any(map(backup.is_void, left.names)), "that one is here"
    backup.note_taken("uid", 4)
    assert any(map(backup.is_void, left.names))
    assert not any(map(backup.is_void, msgspec.structs.replace(left, session="other").names))


def test_the_will_of_a_client_that_is_here_is_seen_to() -> None:
    backup = Backup("n")
    backup.note_here("a.will")
    backup.note_here("")
    assert backup.sees_to("a.will") and not backup.is_void("a.will")
    assert not backup.sees_to("b.will") and not backup.sees_to("")
    backup.note_gone("a.will")
    assert not backup.sees_to("a.will"), "its broker may be gone before the log has it"
    backup.note_void("a.will")
    assert backup.sees_to("a.will")


def test_no_more_settled_wills_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOID_MAX", 2)
    backup = Backup("n")
    for each in ("a", "b", "", "c"):
        backup.note_void(each)
    assert [backup.is_void(each) for each in ("a", "b", "", "c")] == [False, True, False, True]


def test_whoever_has_a_copy_sees_to_its_wills_when_another_stands_in() -> None:
    backing = Backing()
    backing.update(
        1, Delta("a", begin=True, head=willing("a")), Delta("b", begin=True, head=HEAD), whole=True
    )
    assert wills(backing.hear(Mourned("other"))) == []
    assert wills(backing.hear(Mourned("p"))) == ["a"]
    assert wills(backing.hear(Mourned("p"))) == [], "once"
    assert backing.machine.has("p", "a") is None, "whether it lives nobody knows"
    backing.hear(Probe("p", FIRST, 1))
    assert backing.machine.has("p", "a"), "its broker was only cut off"


def test_published_wills_are_not_left_again_when_their_broker_restarts() -> None:
    backing = Backing()
    backing.update(1, Delta("a", begin=True, head=willing("a")), whole=True)
    backing.hear(Mourned("p"))
    assert wills(backing.update(1, series=(0, 2, 1), whole=True)) == []
    assert backing.machine.has("p", "a") is False


def meanwhile() -> Backing:
    """One that stands in without a leader's word: it says wills aloud, and puts none into the log."""
    backing = Backing()
    backing.update(1, willed("logged"), willed("aloud", qos=0), whole=True)
    backing.machine.handle(Kept(primary="p", meanwhile=True), 0)
    return backing


@pytest.mark.parametrize("stands", [True, False])
def test_a_cut_off_backup_publishes_logged_wills_when_another_stands_in(stands: bool) -> None:
    backing = meanwhile()
    if not stands:
        backing.machine.handle(Forgotten(primary="p"), 0)
    assert wills(backing.hear(Mourned("p"))) == ["logged"]
    assert wills(backing.hear(Mourned("p"))) == [], "once"
    assert wills(backing.update(1, series=RESTARTED, whole=True)) == []
    assert backing.machine.copies["p"].kept is stands


@pytest.mark.parametrize("stands", [True, False])
def test_a_cut_off_backup_publishes_logged_wills_at_the_brokers_restart(
    stands: bool,
) -> None:
    backing = meanwhile()
    if not stands:
        backing.machine.handle(Forgotten(primary="p"), 0)
    assert wills(backing.update(1, willed("new"), series=RESTARTED, whole=True)) == ["logged"]
    assert wills(backing.hear(Mourned("p"))) == ["new"]


def test_a_former_cut_off_backup_publishes_the_logged_wills() -> None:
    backing = meanwhile()
    assert wills(backing.hear(Begun("p", 2))) == [], "it stands in still"
    assert wills(backing.machine.handle(Forgotten(primary="p"), 0)) == ["logged"]


def test_a_takeover_after_a_cut_off_one_has_all_wills() -> None:
    backing = meanwhile()
    backing.machine.handle(Kept(primary="p"), 0)
    assert wills(backing.hear(Mourned("p"))) == []
    assert wills(backing.update(1, series=RESTARTED, whole=True)) == []


def test_an_old_disconnect_does_not_affect_a_client_of_another_process() -> None:
    backing = Backing()
    backing.update(1, Delta("a", begin=True, head=willing("a")), series=(0, 2, 1), whole=True)
    effects = backing.update(1, Delta("a", void="older.will"), series=(0, 3, 1), whole=True)
    assert wills(effects) == ["a"] and backing.machine.is_void("older.will")
