"""Record ids: one for a message at QoS 2, whatever happens; never the same for two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.record_ids import REMEMBERED_MAX, STORED_MAX_BYTES, RecordIds
from tocsin.core.delivery.stored_session import StoredSession, encode_session


def session(inbound: dict[int, str], received: tuple[int, ...] = ()) -> StoredSession:
    return StoredSession("me", uid="u", expiry_s=1, inbound=inbound, received=received)


def test_every_try_at_qos_1_has_an_id_of_its_own() -> None:
    ids = RecordIds("p")
    assert [ids.give(5, 1, "t", 7), ids.give(5, 1, "t", 7)] == ["p.1", "p.2"]
    assert ids.inbound == {}


def test_a_qos_2_repeat_has_the_first_ones_record_id_until_release() -> None:
    ids = RecordIds("p")
    first = ids.give(5, 2, "t", 7)
    assert ids.give(5, 2, "t", 7) == first
    assert ids.give(5, 1, "t", 7) != first, "a client that forgot"
    ids.release(5)
    assert ids.give(5, 2, "t", 7) != first


def test_a_session_knows_its_ids_and_which_of_them_the_log_has() -> None:
    ids = RecordIds("q", session({5: "p.1", 6: "p.2"}, (6, 9)))
    assert ids.give(5, 2, "t", 7) == "p.1"
    assert list(ids.kept) == [6], "what has no id is not kept"
    assert ids.keep(5)
    assert not ids.keep(7)
    ids.release(6)
    assert list(ids.kept) == [5]


def test_a_message_is_sought_from_its_first_try_until_it_is_logged() -> None:
    ids = RecordIds("p")
    ids.give(5, 2, "a", 7)
    ids.give(5, 2, "a", 9)  # a repeat: it may be there since the first
    ids.give(6, 2, "b", 9)
    ids.give(7, 1, "c", 9)
    assert ids.sought == {5: (7, "a"), 6: (9, "b")}
    ids.keep(5)
    ids.release(6)
    assert ids.sought == {}


def test_a_stored_session_names_the_positions_of_messages_to_look_for() -> None:
    stored = StoredSession(
        "me",
        uid="u",
        expiry_s=1,
        inbound={5: "p.1", 6: "p.2"},
        received=(6,),
        sought={5: (7, "a"), 6: (7, "b"), 9: (7, "c")},
    )
    assert RecordIds("q", stored).sought == {5: (7, "a")}


def test_ids_that_a_client_never_repeats_do_not_pile_up() -> None:
    many = {each: f"p.{each}" for each in range(1, REMEMBERED_MAX + 11)}
    ids = RecordIds("q", session(many, (1,)))
    assert len(ids.inbound) == REMEMBERED_MAX + 1
    assert 1 in ids.inbound, "the log has its message"
    assert 2 not in ids.inbound, "the oldest of the others"
    assert REMEMBERED_MAX + 10 in ids.inbound


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "release", "crash", "store"]), st.integers(1, 4)), max_size=60
    )
)
def test_no_two_messages_share_an_id_and_no_message_has_two(story: list[tuple[str, int]]) -> None:
    """The client: a message per packet id, repeated until it is released, which counts once it is stored."""
    life = 0
    ids = RecordIds("p0")
    stored = session({})
    messages: dict[int, int] = {}  # packet id → the message under it
    releasing: set[int] = set()
    count = 0
    appended: dict[str, int] = {}  # record id → message
    names: dict[int, str] = {}
    for what, packet_id in story:
        written = what == "store"
        if what == "publish" and packet_id not in releasing:
            if packet_id not in messages:
                count += 1
                messages[packet_id] = count
            record_id = ids.give(packet_id, 2, "t", 7)
            stored, written = session(dict(ids.inbound), tuple(ids.kept)), True  # before it is appended
            assert appended.setdefault(record_id, messages[packet_id]) == messages[packet_id]
            assert names.setdefault(messages[packet_id], record_id) == record_id
            ids.keep(packet_id)
        elif what == "release" and packet_id in messages:
            ids.release(packet_id)
            releasing.add(packet_id)
        elif what == "crash":
            life += 1
            ids = RecordIds(f"p{life}", stored)
            for each in releasing:  # repeated: PUBCOMP did not come
                ids.release(each)
        stored = session(dict(ids.inbound), tuple(ids.kept)) if what == "store" else stored
        if written:  # and with it all releases
            for each in releasing:
                del messages[each]
            releasing.clear()


def test_what_is_written_into_a_session_is_found_again() -> None:
    ids = RecordIds("p")
    ids.give(5, 2, "a", 7)
    ids.give(6, 2, "b", 9)
    ids.keep(5)
    found = RecordIds("q", ids.written_into(session({1: "an older one"})))
    assert (found.inbound, found.kept, found.sought) == (ids.inbound, ids.kept, ids.sought)
    assert found.give(6, 2, "b", 12) == "p.2"


def test_ids_are_stored_within_a_bound_and_what_is_released_makes_room() -> None:
    ids, topic = RecordIds("life.client"), "t" * 500
    given = 0
    while ids.has_room(given + 1, topic):
        given += 1
        ids.give(given, 2, topic, 1 << 40)
    stored = encode_session(ids.written_into(session({})))
    assert STORED_MAX_BYTES // 2 < len(stored) <= STORED_MAX_BYTES + 200
    assert ids.has_room(given, topic), "a repeat has its id already"
    ids.keep(1)
    assert ids.has_room(given + 1, ""), "of what the log has no topic is stored"
    for each in range(1, given + 1):
        ids.release(each)
    again = 0
    while ids.has_room(again + 1, topic):
        again += 1
        ids.give(again, 2, topic, 1 << 40)
    assert abs(again - given) <= 1 + given // 100, (
        "all that was released is free again; ids grow with their number"
    )


def test_what_a_session_has_counts() -> None:
    ids = RecordIds("p")
    for each in range(1, 400):
        ids.give(each, 2, "t" * 500, 7)
    resumed = RecordIds("q", ids.written_into(session({})))
    more = 400
    while resumed.has_room(more, "t" * 500):
        resumed.give(more, 2, "t" * 500, 7)
        more += 1
    assert len(encode_session(resumed.written_into(session({})))) <= STORED_MAX_BYTES + 200


def test_a_repeat_from_an_earlier_connection_may_already_be_in_the_log() -> None:
    first = RecordIds("a.1.1")
    first.give(7, 2, "t", 41)
    assert first.behind(7) is None, "this is the first try"
    session = first.written_into(StoredSession("me", uid="u", expiry_s=60))
    later = RecordIds("b.1.1", session)
    assert later.give(7, 2, "t", 90) == "a.1.1.1"
    assert later.behind(7) == 41
    later.keep(7)
    assert later.behind(7) is None, "it is there"
    assert later.behind(8) is None
