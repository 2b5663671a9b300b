"""Who is awaited, and whose will is due, when a broker is gone or has forgotten its clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.machine import Say
from tocsin.core.replication.gamma import ClientSnapshot, Left
from tocsin.core.survival.takeover import (
    AWAITED_US,
    MEANWHILE,
    RECENT_MAX,
    RECENT_US,
    AwaitWill,
    ClientCame,
    ReleaseCopy,
    Restarted,
    StoodDown,
    StoodIn,
    TakeoverMachine,
)
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import Bequest, Head, Positions

WILL = Bequest(Publication("gone", b"x", 1, "c"), 5)
SECOND = 1_000_000


class Nothing:
    def has(self, primary: str, client: str) -> bool | None:
        return False

    def settled(self, primary: str, client: str) -> bool:
        return False


class Silent(Nothing):
    """A copy from before its broker was lost."""

    def has(self, primary: str, client: str) -> bool | None:
        return None


class Everybody(Nothing):
    def has(self, primary: str, client: str) -> bool | None:
        return True


class Slow(Nothing):
    """A copy whose broker was only slow, and has settled all wills since."""

    def settled(self, primary: str, client: str) -> bool:
        return True


def standing(
    client: str, *, connected: bool = True, will: Bequest | None = None, since_us: int = 0
) -> ClientSnapshot:
    return ClientSnapshot(client, Head(connected, will=will), {}, Positions(), since_us)


def stood_in(epoch: int, *standings: ClientSnapshot, broker: str = "p") -> StoodIn:
    return StoodIn(broker=broker, epoch=epoch, standings=standings)


def test_a_will_waits_for_its_delay_and_the_grace_at_the_least() -> None:
    for grace_s, expected in ((30, 30), (1, 5)):
        effects = TakeoverMachine(Nothing(), grace_s).handle(stood_in(1, standing("a", will=WILL)), 0)
        (will,) = [each for each in effects if isinstance(each, AwaitWill)]
        assert (will.delay_s, will.aloud) == (expected, False)


def test_what_no_leader_has_said_is_said_aloud_only() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    effects = machine.handle(stood_in(MEANWHILE, standing("a", will=WILL)), 0)
    assert [each.aloud for each in effects if isinstance(each, AwaitWill)] == [True]
    machine.handle(stood_in(3), 0)
    assert machine.handle(StoodDown(broker="p", meanwhile=True), 0) == []
    assert ReleaseCopy(broker="p") in machine.handle(StoodDown(broker="p"), 0)


def test_recovery_took_until_the_last_came() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    machine.handle(stood_in(1, standing("a"), standing("b")), 0)
    assert machine.handle(ClientCame(client="a", broker="z"), SECOND) == []
    (said,) = machine.handle(ClientCame(client="b", broker="z"), 2 * SECOND)
    assert isinstance(said, Say) and said.facts["took_ms"] == 2_000


def test_wills_of_a_restart_wait_even_while_we_stand_in() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    event = Restarted(broker="p", wills=(Left("a", WILL, 0),))
    assert any(isinstance(each, AwaitWill) for each in machine.handle(event, 0))
    machine.handle(stood_in(1), 0)
    assert any(isinstance(each, AwaitWill) for each in machine.handle(event, 0))


def test_a_client_lives_if_its_broker_is_back_and_has_it() -> None:
    machine = TakeoverMachine(Everybody(), 1)
    machine.handle(stood_in(1, standing("a", will=WILL)), 0)
    assert not machine.is_alive("p", "a")
    machine.handle(StoodDown(broker="p"), 0)
    assert machine.is_alive("p", "a") and not TakeoverMachine(Nothing(), 1).is_alive("p", "a")


def test_a_will_that_its_broker_settled_is_no_longer_awaited() -> None:
    machine = TakeoverMachine(Slow(), 1)
    assert machine.is_alive("p", "a") is False, "nobody stands in: what the copy has counts"
    machine.handle(stood_in(1, standing("a", will=WILL)), 0)
    assert machine.is_alive("p", "a") is True


def test_a_clients_state_is_unknown_until_its_broker_reports_again() -> None:
    machine = TakeoverMachine(Silent(), 1)
    machine.handle(stood_in(1, standing("a", will=WILL)), 0)
    assert machine.is_alive("p", "a") is False, "while this one stands in, it is gone"
    machine.handle(StoodDown(broker="p"), 0)
    assert machine.is_alive("p", "a") is None


def test_who_came_elsewhere_before_the_loss_was_known_is_alive() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    machine.handle(ClientCame(client="moved", broker="q"), 0)
    machine.handle(ClientCame(client="stayed", broker="p"), 0)
    machine.handle(ClientCame(client="long ago", broker="q"), -RECENT_US)
    here = [standing(each, will=WILL) for each in ("moved", "stayed", "long ago")]
    effects = machine.handle(stood_in(1, *here), 1)
    assert [each.client for each in effects if isinstance(each, AwaitWill)] == ["stayed", "long ago"]
    assert machine.statistics(1)["awaited"] == 2
    effects = TakeoverMachine(Nothing(), 1).handle(Restarted(broker="p", wills=(Left("moved", WILL, 0),)), 1)
    assert len([each for each in effects if isinstance(each, AwaitWill)]) == 1
    machine.handle(StoodDown(broker="p"), 1)
    effects = machine.handle(Restarted(broker="p", wills=(Left("moved", WILL, 0),)), 1)
    assert not [each for each in effects if isinstance(each, AwaitWill)]


def test_a_client_that_came_during_a_cut_off_takeover_is_alive() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    machine.handle(stood_in(MEANWHILE, standing("came", will=WILL), standing("dead", will=WILL)), 0)
    machine.handle(ClientCame(client="came", broker="q"), 1)
    machine.handle(StoodDown(broker="p", meanwhile=True), 2)
    for since_us, expected in ((0, ["dead"]), (2, ["came", "dead"])):
        left = tuple(Left(each, WILL, since_us) for each in ("came", "dead"))
        effects = machine.handle(Restarted(broker="p", wills=left), 2 * RECENT_US)
        awaited = [each for each in effects if isinstance(each, AwaitWill)]
        assert [each.client for each in awaited] == expected
        assert not any(each.aloud for each in awaited)


def test_a_client_back_at_the_lost_broker_does_not_count_as_elsewhere() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    machine.handle(ClientCame(client="back", broker="q"), SECOND)
    effects = machine.handle(stood_in(1, standing("back", will=WILL, since_us=2 * SECOND)), 3 * SECOND)
    assert [each.client for each in effects if isinstance(each, AwaitWill)] == ["back"]
    machine.handle(StoodDown(broker="p"), 3 * SECOND)
    effects = machine.handle(Restarted(broker="p", wills=(Left("back", WILL, 2 * SECOND),)), 3 * SECOND)
    assert [each.client for each in effects if isinstance(each, AwaitWill)] == ["back"]


def test_of_those_who_came_lately_only_so_many_are_remembered() -> None:
    machine = TakeoverMachine(Nothing(), 1)
    for each in range(RECENT_MAX + 1):
        machine.handle(ClientCame(client=str(each), broker="q"), 0)
    effects = machine.handle(stood_in(1, standing("0", will=WILL), standing("1", will=WILL)), 1)
    assert [each.client for each in effects if isinstance(each, AwaitWill)] == ["0"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["in", "down", "meanwhile over", "came", "later"]),
            st.sampled_from("pq"),
            st.integers(0, 3),
            st.sampled_from("abc"),
        )
    )
)
def test_it_counts_as_a_list_would(steps: list[tuple[str, str, int, str]]) -> None:
    machine, now_us = TakeoverMachine(Nothing(), 1), 0
    came_us: dict[str, int] = {}
    meanwhile_us: dict[str, int] = {}  # broker → when it was last stood in for without a leader's word
    places: dict[str, tuple[int, int, list[str]]] = {}  # broker → epoch, when, who is awaited
    for step, broker, epoch, client in steps:
        match step:
            case "in":
                machine.handle(stood_in(epoch, standing(broker + client), broker=broker), now_us)
                if broker not in places or places[broker][0] < epoch:
                    if epoch == MEANWHILE:
                        meanwhile_us[broker] = now_us
                    counts_us = min(now_us - RECENT_US, meanwhile_us.get(broker, now_us))
                    elsewhere = came_us.get(broker + client, counts_us - 1) >= counts_us
                    places[broker] = (epoch, now_us, [] if elsewhere else [broker + client])
            case "down" | "meanwhile over":
                only = step != "down"
                effects = machine.handle(StoodDown(broker=broker, meanwhile=only), now_us)
                ends = broker in places and (not only or places[broker][0] == MEANWHILE)
                assert any(isinstance(each, ReleaseCopy) for each in effects) == ends
                if ends:
                    del places[broker]
            case "came":
                machine.handle(ClientCame(client=broker + client, broker="z"), now_us)
                came_us[broker + client] = now_us
                if broker in places and broker + client in places[broker][2]:
                    places[broker][2].remove(broker + client)
            case "later":
                now_us += AWAITED_US // 2 + 1
    awaited = sum(len(who) for _, at_us, who in places.values() if now_us - at_us <= AWAITED_US)
    found = machine.statistics(now_us)
    assert (found["standing_in"], found["awaited"]) == (len(places), awaited)
