"""The lease of the leadership: a key in a table that expires if it is not renewed.

The lease says who should lead; it does not make sure of it. That is the log's part: it refuses a writer that does not
know its end. So a lease that two believe in for a moment costs time, and nothing else.

By its owner's clock it ends MARGIN before it does at the store: it counts from when it was asked for, and the store
from when it was granted.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.machine import DeleteKey, Effect, PutKey, SetTimer, Stored, StoreFailed
from tocsin.errors import Conflict
from tocsin.model.versions import Format
from tocsin.ports import Change

KEY: Final = "core.leader"
OWNER: Final = Format("the lease of the leader")
RENEWALS: Final = 3  # in one lease's time: one may be lost
MARGIN: Final = 10  # a tenth of it: clocks that drift so far are broken


class Lease:
    """The lease of the leadership, as one coordinator knows it."""

    def __init__(self, table: str, owner: str, ttl_us: int) -> None:
        self._table = table
        self._owner = OWNER.seal(owner.encode())  # only ever compared
        self._ttl_us = ttl_us
        self._revision = 0  # of the key, if it is ours
        self._asked_us: dict[str, int] = {}  # request → when; the newest only
        self.renewal = ""  # the request for longer whose answer is awaited
        self.until_us = 0  # ours until then, by our clock
        self.holder: bytes | None = None  # as the table tells it

    @property
    def renew_us(self) -> int:
        return self._ttl_us // RENEWALS

    def watched(self, change: Change) -> None:
        """The table says something of the key."""
        if change.kind == "put":
            self.holder = change.value
            if change.value == self._owner:
                self._revision = max(self._revision, change.revision)
        elif change.kind in ("delete", "reset"):
            self.holder = None

    def ask(self, request: str, now_us: int, *, renew: bool) -> Effect:
        """Take the lease, or take it for longer."""
        self._asked_us = {request: now_us}
        return PutKey(
            request=request,
            table=self._table,
            key=KEY,
            value=self._owner,
            revision=self._revision if renew else 0,
            ttl_us=self._ttl_us,
        )

    def granted(self, request: str, revision: int) -> bool:
        """The store has it; False if that is old news."""
        asked_us = self._asked_us.pop(request, None)
        if asked_us is None:
            return False
        self._revision = revision
        self.until_us = asked_us + self._ttl_us - self._ttl_us // MARGIN
        return True

    def held(self, now_us: int) -> list[Effect]:
        """It is ours: when to ask for longer, and when it ends if nobody answers."""
        return [SetTimer(name=CoordinatorTimer.RENEW, delay_us=self.renew_us), self._set_lapse(now_us)]

    def renew(self, request: str, now_us: int) -> list[Effect]:
        """Take it for longer."""
        self.renewal = request
        return [
            self.ask(request, now_us, renew=True),
            SetTimer(name=CoordinatorTimer.RENEW, delay_us=self.renew_us),
        ]

    def renewed(self, event: Stored | StoreFailed, now_us: int) -> list[Effect] | None:
        """The answer to a renewal; None if somebody else has the lease."""
        self.renewal = ""
        if isinstance(event, StoreFailed):
            return None if isinstance(event.error, Conflict) else []
        self.granted(event.request, event.value)
        return [self._set_lapse(now_us)]

    def _set_lapse(self, now_us: int) -> Effect:
        return SetTimer(name=CoordinatorTimer.LAPSE, delay_us=max(0, self.until_us - now_us))

    def resign(self, request: str) -> Effect:
        """Give it back, so that nobody has to wait for its end."""
        self.until_us = 0
        return DeleteKey(request=request, table=self._table, key=KEY, revision=self._revision)
