"""A backup covers for a broker while its clients come, and the others believe it for a while."""

from __future__ import annotations

import pytest

from tocsin.core.machine import Effect, TimerFired
from tocsin.core.survival import covering
from tocsin.core.survival.covering import (
    AGAIN_US,
    BELIEVED_US,
    ClientReturned,
    CoveringMachine,
    CoveringTimer,
    CoversChanged,
    TellAll,
    WordHeard,
)
from tocsin.errors import Malformed
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.replication import Covering, decode_covering, encode_covering

OWN = BrokerInfo("north-2", "north", Role.EDGE, "127.0.0.1", 1)
OTHER = BrokerInfo("north-3", "north", Role.EDGE, "127.0.0.1", 2)
LOST = "north-1"


class Backup:
    """A machine, and whether the coordinator knows everything."""

    def __init__(self) -> None:
        self.told = False
        self.machine = CoveringMachine(OWN, lambda: self.told)

    def comes(self, at_us: int) -> list[Covering]:
        return words(self.machine.handle(ClientReturned(primary=LOST), at_us))

    def again(self, at_us: int) -> list[Covering]:
        return words(self.machine.handle(TimerFired(name=CoveringTimer.AGAIN), at_us))

    def hears(self, at_us: int, *, by: BrokerInfo = OTHER, over: bool = False) -> list[Effect]:
        effects = self.machine.handle(WordHeard(word=Covering(LOST, by, over)), at_us)
        return [each for each in effects if isinstance(each, CoversChanged)]

    def doubts(self, at_us: int) -> list[Effect]:
        effects = self.machine.handle(TimerFired(name=CoveringTimer.BELIEVED), at_us)
        return [each for each in effects if isinstance(each, CoversChanged)]


def words(effects: list[Effect]) -> list[Covering]:
    return [each.word for each in effects if isinstance(each, TellAll)]


def test_the_first_client_is_announced_at_once_and_later_ones_not() -> None:
    backup = Backup()
    assert backup.comes(0) == [Covering(LOST, OWN)]
    assert backup.comes(10) == []


def test_a_cover_lasts_until_the_coordinator_knows_everything() -> None:
    backup = Backup()
    backup.comes(0)
    assert backup.again(AGAIN_US) == [Covering(LOST, OWN)]
    backup.told = True
    assert backup.again(2 * AGAIN_US) == [Covering(LOST, OWN, over=True)]
    assert backup.machine.covers == ()


def test_a_cover_lasts_while_clients_come() -> None:
    backup = Backup()
    backup.told = True
    backup.comes(0)
    backup.comes(AGAIN_US - 1)
    assert backup.again(AGAIN_US) == [Covering(LOST, OWN)]
    assert backup.again(2 * AGAIN_US) == [Covering(LOST, OWN, over=True)]


def test_a_word_is_believed_until_it_is_over() -> None:
    broker = Backup()
    assert broker.hears(0) == [CoversChanged(began=((LOST, OTHER),))]
    assert broker.hears(1) == []
    assert broker.hears(2, by=BrokerInfo("x", "north", Role.EDGE, "", 0), over=True) == []
    assert broker.hears(3, over=True) == [CoversChanged(over=(LOST,))]


def test_a_word_that_is_not_repeated_is_believed_for_a_while() -> None:
    broker = Backup()
    broker.hears(0)
    broker.hears(AGAIN_US)
    assert broker.doubts(BELIEVED_US) == []
    assert broker.doubts(BELIEVED_US + AGAIN_US) == [CoversChanged(over=(LOST,))]


def test_its_own_word_is_not_believed() -> None:
    assert Backup().hears(0, by=OWN) == []


def test_a_backup_that_moved_is_believed_at_its_new_address() -> None:
    broker = Backup()
    broker.hears(0)
    moved = BrokerInfo(OTHER.id, OTHER.cluster, OTHER.role, OTHER.host, 77)
    assert broker.hears(1, by=moved) == [CoversChanged(began=((LOST, moved),))]


def test_only_so_many_covers_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "COVERS_MAX", 1)
    machine = CoveringMachine(OWN, lambda: True)
    for lost in ("a", "b"):
        machine.handle(WordHeard(word=Covering(lost, OTHER)), 0)
    assert machine.believed == ("a",)


def test_a_word_survives_its_encoding_and_nonsense_does_not() -> None:
    word = Covering(LOST, OWN, over=True)
    assert decode_covering(encode_covering(word)) == word
    with pytest.raises(Malformed):
        decode_covering(b"\x01nonsense")
