"""Requests with an ``Idempotency-Key``: which were taken, and which may have been; pure.

The log remembers the ids of records for a while. A sender that got no answer may come back later than that. So it is
remembered here, too, for as long as the feeder runs: of a request that was taken, that it was; of one without an
answer from the store, behind which position of the log it would be.
"""

from __future__ import annotations

from typing import Final

KEYS_MAX: Final = 50_000  # the newest; some 200 bytes each, so 10 MB
_TAKEN: Final = -1


class Keys:
    """See the module's text. A request is known by the beginning of its records' ids."""

    def __init__(self, most: int = KEYS_MAX) -> None:
        self._most = most
        self._known: dict[str, int] = {}  # request → _TAKEN, or the position; the newest last

    def taken(self, request: str) -> bool:
        return self._known.get(request) == _TAKEN

    def behind(self, request: str) -> int | None:
        """The position behind which the log may have it; None: it is not known to have been tried."""
        position = self._known.get(request)
        return None if position == _TAKEN else position

    def took(self, request: str) -> None:
        self._keep(request, _TAKEN)

    def doubt(self, request: str, behind: int) -> None:
        """The store did not say whether it took it."""
        self._keep(request, behind)

    def _keep(self, request: str, what: int) -> None:
        self._known.pop(request, None)
        self._known[request] = what
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
