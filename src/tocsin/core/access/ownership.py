"""Ownership of client ids: which user may have one when two users come with it to two brokers.

A client id is one over the whole network, and belongs to the user whose client or stored session has it. A broker to
which a client comes under an id that it does not know to be the user's **claims** it: it asks the other brokers before
the client is let in, and before anybody is told that the client came. A broker that has that id for another user
compares the two claims, and objects or gives way. Both sides compare the same two claims by the same rule, so that one
of them wins, whichever asks first:

1. A client that has proven no user owns nothing: a client that has proven one wins.
2. A stored session is its owner's: its claim wins. There is one cell for each client id, so that only one user has it.
3. A connected client wins against a connecting one.
4. The earlier one wins, by the clock on the wall; of two at the same microsecond the one at the broker whose name is
   first. Clocks differ between machines, but both sides compare the same two numbers.

Two connections of one user never conflict: the later one takes the id over.
"""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A client at a broker."""

    client: str
    owner: str  # the user that it has proven to be; empty: none
    broker: str
    came_us: int  # by the clock on the wall
    stored: bool = False  # the user has a stored session of that client id
    inside: bool = False  # it was welcomed


def may_take(owner: str, user: str) -> bool:
    """Whether a user may have what belongs to this owner; what belongs to nobody in particular, everybody may."""
    return owner in ("", user)


def prevails(ours: Claim, theirs: Claim) -> bool:
    """Whether our client keeps the id against one of another broker. Between two claims of one user neither wins: that
    is a takeover.
    """
    if may_take(ours.owner, theirs.owner):
        return False
    if not theirs.owner:
        return True
    if ours.stored != theirs.stored:
        return ours.stored
    if ours.inside != theirs.inside:
        return ours.inside
    return (ours.came_us, ours.broker) < (theirs.came_us, theirs.broker)
