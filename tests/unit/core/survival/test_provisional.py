"""Who is served without its session, and what is written when the store is back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.replication.gamma import ClientSnapshot
from tocsin.core.survival.provisional import Record, admit, recorded, settle
from tocsin.wire.replication import Head, Positions

OLD, NEW = {"old": Subscription(qos=1)}, {"new": Subscription(qos=1)}
KNOWN = recorded(
    ClientSnapshot("c", Head(True, session="uid", epoch=4, expiry_s=60), OLD, Positions()), tail=9
)
STORED = StoredSession(
    client="c", uid="uid", expiry_s=60, epoch=4, broker="gone", subscriptions=OLD, progress=Progress(7)
)


def came(
    known: Record | None, *, clean: bool = False, expiry_s: int = 60, owner: str = ""
) -> Record | str | None:
    return admit("c", known, owner=owner, clean=clean, expiry_s=expiry_s, tail=9)


def settled(record: Record, stored: StoredSession | None, *, here: bool = True) -> StoredSession | str:
    return settle(record, stored, here=here, broker="own", uid="fresh")


def test_a_client_that_is_known_is_served_with_its_subscriptions() -> None:
    found = came(KNOWN, expiry_s=90)
    assert isinstance(found, Record)
    assert (found.subscriptions, found.uid, found.epoch, found.expiry_s) == (OLD, "uid", 4, 90)


def test_one_that_may_have_a_session_of_which_nothing_is_known_is_refused() -> None:
    assert came(None) == "unknown"


def test_one_that_wants_none_to_last_is_served_without() -> None:
    assert came(None, expiry_s=0) is None


@pytest.mark.parametrize("known", [None, KNOWN])
def test_one_that_begins_anew_has_nothing(known: Record | None) -> None:
    found = came(known, clean=True)
    assert isinstance(found, Record) and found.fresh and found.subscriptions == {}


def test_another_user_does_not_get_the_session() -> None:
    theirs = msgspec.structs.replace(KNOWN, owner="alice")
    assert came(theirs, owner="bob") == "not yours" == came(theirs, owner="bob", clean=True)
    assert isinstance(came(theirs, owner="alice"), Record)
    assert settled(KNOWN, msgspec.structs.replace(STORED, owner="alice")) == "let go"


def test_what_changed_meanwhile_is_written_with_a_new_epoch_and_nothing_else_is_touched() -> None:
    found = settled(msgspec.structs.replace(KNOWN, subscriptions=NEW), STORED)
    assert found == msgspec.structs.replace(STORED, epoch=5, broker="", subscriptions=NEW)


def test_what_did_not_change_is_not_written() -> None:
    assert settled(KNOWN, STORED) == "as it is"


@pytest.mark.parametrize(
    "stored",
    [
        None,
        msgspec.structs.replace(STORED, epoch=5),
        msgspec.structs.replace(STORED, epoch=5, broker=""),
        msgspec.structs.replace(STORED, uid="another"),
    ],
)
def test_a_session_that_somebody_has_taken_since_is_let_go(stored: StoredSession | None) -> None:
    assert settled(msgspec.structs.replace(KNOWN, subscriptions=NEW), stored) == "let go"


def test_a_session_that_its_client_ended_is_forgotten() -> None:
    over = msgspec.structs.replace(KNOWN, expiry_s=0)
    assert settled(over, STORED) == "forget" and settled(over, None) == "let go"


def test_a_new_session_begins_where_the_log_was_known_to_end() -> None:
    began = came(None, clean=True)
    assert isinstance(began, Record)
    found = settled(msgspec.structs.replace(began, subscriptions=NEW), None)
    assert isinstance(found, StoredSession)
    assert (found.uid, found.epoch, found.broker, found.subscriptions) == ("fresh", 1, "", NEW)
    assert found.progress == Progress(10) and found.home == "own"


def test_a_new_session_replaces_an_old_one_that_nobody_has_if_its_client_is_here() -> None:
    began = came(None, clean=True)
    assert isinstance(began, Record)
    nobodys = msgspec.structs.replace(STORED, broker="")
    found = settled(began, nobodys)
    assert isinstance(found, StoredSession) and (found.uid, found.epoch) == ("fresh", 5)
    assert settled(began, nobodys, here=False) == "let go" == settled(began, STORED)


EPOCHS = st.integers(1, 3)
CELLS = st.none() | st.builds(
    lambda uid, epoch, broker, names: StoredSession(
        client="c", uid=uid, expiry_s=60, epoch=epoch, broker=broker, subscriptions=names
    ),
    st.sampled_from(["u", "v"]),
    EPOCHS,
    st.sampled_from(["", "own", "else"]),
    st.sampled_from([OLD, NEW]),
)


@given(CELLS, st.sampled_from(["", "u"]), EPOCHS, st.booleans(), st.booleans(), st.sampled_from([0, 60]))
def test_nothing_is_written_over_a_cell_that_was_taken_since(
    cell: StoredSession | None, uid: str, epoch: int, fresh: bool, here: bool, expiry_s: int
) -> None:
    record = Record("c", "", uid, epoch, expiry_s, fresh or not uid, 0, NEW)
    found = settled(record, cell, here=here)
    if isinstance(found, StoredSession) or found == "forget":
        known = cell is not None and (cell.uid, cell.epoch) == (uid, epoch)
        nobodys = cell is not None and not uid and cell.broker == ""
        assert known or (nobodys and here) or (cell is None and record.fresh)
    if isinstance(found, StoredSession):
        assert found.epoch == (1 if cell is None else cell.epoch + 1)
        assert found.broker == "" and found.subscriptions == NEW
