"""A retained message as it is stored, and what it costs to keep it."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.budgets.budget import weight_of_publication
from tocsin.core.retained.topics import OVERHEAD_BYTES
from tocsin.model.publication import Publication
from tocsin.model.versions import Packed


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A retained message and when it was taken."""

    publication: Publication
    at_s: float
    position: int = 0  # in the log; of one at QoS 0, of the log when it came
    user: str = ""  # whose budget it counts against

    @property
    def size(self) -> int:
        """The bytes that a broker needs to keep it."""
        return size_of(self.publication)

    def waited_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.at_s)

    def over(self, now_s: float) -> bool:
        """Whether its time is over."""
        return self.publication.expiry_s is not None and self.publication.expired(self.waited_s(now_s))


class Stub(Kept, frozen=True, array_like=True, gc=False):
    """What a broker has of a retained message whose payload it has let go of; it is fetched from the table."""

    whole: int = 0  # the size of the message

    @property
    def size(self) -> int:
        """The bytes of the whole message, as the budget counts them."""
        return self.whole


def stub_of(kept: Kept) -> Stub:
    """A message without what is said in it."""
    whole = kept.publication
    said = Publication(whole.topic, b"", whole.qos, whole.client, expiry_s=whole.expiry_s)
    return Stub(said, kept.at_s, kept.position, kept.user, kept.size)


KEPT: Final = Packed("a retained message", msgspec.msgpack.Decoder(Kept))


def size_of(publication: Publication) -> int:
    """The bytes that a broker needs to keep a message; none, if the message removes another."""
    if not publication.payload:
        return 0
    return OVERHEAD_BYTES + len(publication.topic) + weight_of_publication(publication)
