"""A client's way in: what comes before its session is taken, and what after."""

from __future__ import annotations

import pytest

from tocsin.core.access.ownership import Claim
from tocsin.core.delivery.entering import (
    ArrivalNoted,
    AwaitEnding,
    AwaitForgotten,
    AwaitSettled,
    Entered,
    Entering,
    EnteringState,
    EntryAsked,
    EntryRefused,
    FindMessages,
    MessagesFound,
    NoteAlive,
    NoteArrival,
    NoteTaken,
    SessionHad,
    StepOver,
    TakeSession,
    TellOthers,
)
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.taking import Abandoned
from tocsin.core.delivery.window import Progress
from tocsin.core.machine import Effect, Event
from tocsin.errors import StoreUnavailable

SESSION = StoredSession("c", uid="uid", expiry_s=60, broker="b", progress=Progress(1), received=(3,))
CLAIM = Claim("c", "ann", "b", 7)


def tell(machine: Entering, *events: Event) -> list[Effect]:
    return [effect for event in events for effect in machine.handle(event, 0)]


def asked(*, clean: bool = False, wanted: bool = True) -> EntryAsked:
    return EntryAsked(owner="ann", clean=clean, wanted=wanted)


def taking(*, clean: bool = False) -> Entering:
    """A client whose session is about to be taken."""
    machine = Entering("c", "b")
    tell(machine, asked(clean=clean), ArrivalNoted(came_us=7, cut_off=None), *[StepOver()] * 3)
    assert machine.state is EnteringState.TAKING
    return machine


@pytest.mark.parametrize("clean", [True, False])
def test_local_writers_of_the_cell_end_before_it_is_taken(clean: bool) -> None:
    machine = Entering("c", "b")
    assert tell(machine, asked(clean=clean)) == [NoteArrival()]
    alive, *steps = tell(machine, ArrivalNoted(came_us=7, cut_off=None), *[StepOver()] * 3)
    assert alive == NoteAlive(claim=CLAIM, back=not clean)
    assert steps == [AwaitEnding(), AwaitForgotten(), AwaitSettled(), TakeSession(came_us=7)]


def test_a_client_that_has_gone_already_came_nowhere() -> None:
    (refused,) = tell(Entering("c", "b"), asked(wanted=False))
    assert isinstance(refused, EntryRefused) and isinstance(refused.error, Abandoned)


def test_a_cut_off_broker_counts_its_client_alive_and_asks_nothing() -> None:
    machine, cut_off = Entering("c", "b"), StoreUnavailable("take", "cut off")
    tell(machine, asked())
    assert tell(machine, ArrivalNoted(came_us=7, cut_off=cut_off)) == [
        NoteAlive(claim=CLAIM, back=True),
        EntryRefused(error=cut_off),
    ]


@pytest.mark.parametrize("wanted", [True, False])
def test_other_brokers_hear_of_a_taken_session_unless_its_client_left(wanted: bool) -> None:
    effects = tell(taking(), SessionHad(session=SESSION, wanted=wanted))
    told = TellOthers(claim=Claim("c", "ann", "b", 7, stored=True, inside=True), back=True)
    assert effects == [*([told] if wanted else []), NoteTaken(session=SESSION), FindMessages(session=SESSION)]


def test_a_client_without_a_session_is_in_at_once() -> None:
    machine = taking(clean=True)
    told, entered = tell(machine, SessionHad(session=None, wanted=True))
    assert told == TellOthers(claim=Claim("c", "ann", "b", 7, stored=False, inside=True), back=False)
    assert entered == Entered(session=None) and machine.state is EnteringState.OVER


@pytest.mark.parametrize(("found", "received"), [((), (3,)), ((5, 6), (3, 5, 6))])
def test_what_the_log_has_of_the_clients_messages_counts_as_received(
    found: tuple[int, ...], received: tuple[int, ...]
) -> None:
    machine = taking()
    tell(machine, SessionHad(session=SESSION, wanted=True))
    (entered,) = tell(machine, MessagesFound(packet_ids=found))
    assert isinstance(entered, Entered) and entered.session is not None
    assert entered.session.received == received
