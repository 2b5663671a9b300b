"""What may become of a group's cell: who gets what when members come, go, die and unsubscribe."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core.shared.draft import GroupDraft
from tocsin.core.shared.stored_group import MEMBERS_MAX_BYTES, Claim, Member, StoredGroup, encode_group

HERE, THERE = "here.1", "there.1"
NOW_S = 1_000


def member(incarnation: str = HERE, *, session: str = "s", epoch: int = 1, expiry_s: int = 60) -> Member:
    return Member(session, epoch, incarnation, expiry_s)


def draft_of(
    members: dict[str, Member],
    claims: dict[str, tuple[Claim, ...]] | None = None,
    free: dict[int, tuple[str, ...]] | None = None,
) -> GroupDraft:
    return GroupDraft(StoredGroup("n", 10, members, claims or {}, free or {}))


def done(draft: GroupDraft) -> StoredGroup:
    draft.tidy()
    group = draft.done()
    assert group is not None
    return group


EACH = (Claim(1, 0, 0), Claim(2, 65_535, 1), Claim(3, 65_534, 2))


def test_a_member_joins_and_is_present() -> None:
    draft = draft_of({})
    assert draft.join("c", member())
    assert done(draft).members == {"c": member()}


def test_a_later_connection_of_the_session_wins_and_keeps_what_it_has() -> None:
    draft = draft_of({"c": member(epoch=2)}, {"c": EACH[1:]})
    assert not draft.join("c", member(THERE, epoch=1))
    assert draft.join("c", member(THERE, epoch=3))
    group = done(draft)
    assert (group.members["c"], group.claims["c"]) == (member(THERE, epoch=3), EACH[1:])


def test_another_session_of_the_client_begins_with_nothing() -> None:
    draft = draft_of({"c": member()}, {"c": EACH})
    assert draft.join("c", member(session="t"))
    group = done(draft)
    assert (group.claims, group.free) == ({}, {2: ()})


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_a_leaving_members_messages_go_to_others_except_at_qos_2(expiry_s: int) -> None:
    draft = draft_of({"c": member(), "d": member(THERE)}, {"c": EACH})
    draft.leave("c", member(expiry_s=expiry_s), NOW_S)
    group = done(draft)
    assert group.free == {2: ()}
    assert group.claims == ({"c": EACH[2:]} if expiry_s else {})
    assert group.members.get("c") == (
        msgspec.structs.replace(member(""), until_s=NOW_S + 60) if expiry_s else None
    )


def test_an_absent_member_keeps_its_messages_while_it_is_the_only_one() -> None:
    draft = draft_of({"c": member()}, {"c": EACH})
    draft.leave("c", member(), NOW_S)
    group = done(draft)
    assert (group.claims, group.free) == ({"c": EACH[1:]}, {})
    later = GroupDraft(group)
    later.join("d", member(THERE, session="t"))
    group = done(later)
    assert (group.claims, group.free) == ({"c": EACH[2:]}, {2: ()})


def test_an_old_connection_cannot_leave_for_its_member() -> None:
    for other in (member(THERE, epoch=2), member(epoch=2), member(session="t")):
        draft = draft_of({"c": other})
        draft.leave("c", member(), NOW_S)
        assert done(draft).members == {"c": other}


def test_an_earlier_connection_at_the_same_broker_goes_with_the_later_one() -> None:
    draft = draft_of({"c": member(epoch=1)})
    draft.leave("c", member(epoch=2), NOW_S)
    assert not done(draft).members["c"].incarnation


def test_members_of_a_life_that_is_over_are_away_or_gone() -> None:
    draft = draft_of(
        {"c": member(), "clean": member(expiry_s=0), "d": member(THERE)},
        {"c": EACH, "clean": (Claim(4, 1, 2),)},
    )
    draft.bury(HERE, NOW_S)
    group = done(draft)
    assert sorted(group.members) == ["c", "d"]
    assert not group.members["c"].incarnation
    assert (group.claims, group.free) == ({"c": EACH[2:]}, {2: ()})


def test_who_is_away_for_too_long_is_forgotten() -> None:
    away = msgspec.structs.replace(member(""), until_s=NOW_S)
    draft = draft_of({"c": away, "d": member(THERE)}, {"c": EACH[2:]})
    draft.expire(NOW_S - 1)
    assert "c" in draft.members
    draft.expire(NOW_S)
    group = done(draft)
    assert (sorted(group.members), group.claims, group.free) == (["d"], {}, {})


def test_who_unsubscribes_keeps_what_it_has_and_goes_when_that_is_settled() -> None:
    draft = draft_of({"c": member(), "d": member(THERE)}, {"c": EACH[1:]})
    draft.unsubscribe("c", member())
    group = done(draft)
    assert (group.members["c"].leaving, group.claims, group.incarnations()) == (
        True,
        {"c": EACH[1:]},
        [THERE],
    )
    later = GroupDraft(group)
    later.settle("c", {2, 3})
    assert sorted(done(later).members) == ["d"]


def test_who_unsubscribed_and_goes_leaves_nothing_waiting() -> None:
    leaving = msgspec.structs.replace(member(), leaving=True)
    draft = draft_of({"c": leaving, "d": member(THERE)}, {"c": EACH[1:]})
    draft.leave("c", leaving, NOW_S)
    group = done(draft)
    assert (sorted(group.members), group.claims, group.free) == (["d"], {}, {2: ()})


def test_a_session_that_is_over_ends_the_membership_of_that_session_only() -> None:
    draft = draft_of({"c": member(session="new")})
    draft.end("c", "old")
    assert "c" in done(draft).members
    draft.end("c", "new")
    assert draft.done() is None, "nobody is left"


def test_what_is_given_back_can_be_claimed_again() -> None:
    draft = draft_of({"c": member()}, free={4: (), 5: ()})
    draft.claim("c", Claim(4, 7, 1))
    assert (done(draft).free, done(draft).claims) == ({5: ()}, {"c": (Claim(4, 7, 1),)})


def test_a_message_that_no_life_can_take_is_settled_and_counted() -> None:
    draft = draft_of({"c": member(), "d": member(THERE)})
    draft.pass_over(4, HERE)
    assert draft.tidy() == 0
    assert draft.free == {4: (HERE,)}
    draft.pass_over(4, THERE)
    assert draft.tidy() == 1
    assert draft.free == {}


def test_a_new_member_is_offered_messages_its_broker_could_not_place() -> None:
    draft = draft_of({"c": member(), "d": member(THERE)}, free={4: (HERE,)})
    draft.join("e", member(session="t"))
    assert done(draft).free == {4: ()}


def test_what_lives_have_passed_that_are_gone_is_forgotten() -> None:
    draft = draft_of({"c": member(), "d": member(THERE)}, free={4: (THERE,)})
    draft.bury(THERE, NOW_S)
    assert done(draft).free == {4: ()}


def test_positions_only_move_ahead() -> None:
    draft = draft_of({"c": member()})
    draft.advance(5)
    assert done(draft).next == 10
    draft.advance(12)
    assert done(draft).next == 12


def test_members_take_a_bounded_part_of_the_cell() -> None:
    draft, many = draft_of({}), 0
    while draft.has_room(f"{many:0256}", member("life" * 20), MEMBERS_MAX_BYTES):
        draft.join(f"{many:0256}", member("life" * 20))
        many += 1
    assert many > 500 and len(encode_group(done(draft))) <= MEMBERS_MAX_BYTES + 100


def test_what_is_passed_over_is_counted_in_bytes() -> None:
    draft = draft_of({"c": member()})
    size = sum(
        draft.pass_over(position, incarnation)
        for position in range(100)
        for incarnation in ("a" * 70, "b" * 70)
    )
    assert draft.free_bytes() <= size
    assert len(encode_group(done(draft))) <= draft.free_bytes() + 200


def test_a_group_is_its_first_members_users_until_nobody_is_left() -> None:
    draft = draft_of({})
    assert draft.admits("c", "s", "alice")
    draft.join("c", member(), "alice")
    group = done(draft)
    assert group.owner == "alice"
    draft = GroupDraft(group)
    assert draft.admits("d", "t", "alice") and not draft.admits("d", "t", "mallory")
    assert not draft.admits("c", "another session", "mallory"), "a client id is no proof"
    assert draft.admits("c", "s", "mallory"), "who is a member already stays one"
    draft.join("d", member(session="t"), "mallory")  # a rule let it in
    assert done(draft).owner == "alice"
    draft.end("c", "s")
    draft.end("d", "t")
    assert draft.admits("e", "u", "mallory")


def test_a_group_of_before_there_were_owners_is_whose_member_comes_next() -> None:
    draft = draft_of({"c": member()})
    assert draft.admits("d", "t", "bob")
    draft.join("d", member(session="t"), "bob")
    assert done(draft).owner == "bob"
