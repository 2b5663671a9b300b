"""The meaning of JetStream's answers: each error code of the server becomes one of ours, in one place.

The server answers a request with JSON that holds either the outcome or an ``error`` with a number. ``judge`` turns the
error into the exception to raise. Callers inside the store retry on ``Passing``; every other is final. Numbers that are
not listed fall to their class: 4xx is a request that will never be accepted, everything else is the server's own
trouble, which may pass.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tocsin.errors import Refused, StoreError, StoreFull, StoreUnavailable

WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})  # the expected position or revision is not the last
WRONG_LAST_ID: Final = 10070
NO_BATCHES: Final = 10174  # the stream takes no atomic batches: nobody has adapted it yet
DUPLICATE_IN_BATCH: Final = 10201
DUPLICATE_IN_FLIGHT: Final = 10158  # the first append with that id is not decided yet
BATCH_INCOMPLETE: Final = 10176  # the server restarted, changed its leader or could not stage the batch
NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059
NO_TTL: Final = 10166  # the stream lets no message have a time to live
STREAM_IS_THERE: Final = 10058  # a stream of that name, with another configuration

_FULL: Final = frozenset({10002, 10023, 10028, 10047, 10122})  # account, server, memory, disk, stream limits
_PASSING: Final = frozenset(
    {
        10004,  # incomplete results
        10005,  # no suitable peers for placement
        10007,  # not assigned to this server yet
        10008,  # temporarily unavailable
        10009,  # not the leader
        10039,  # not enabled for the account: the server is still starting
        10076,  # not enabled: the server is still starting, or stopped its store
        BATCH_INCOMPLETE,
        DUPLICATE_IN_FLIGHT,
    }
)
_FINAL: Final = frozenset(
    {10052, 10074}
)  # 5xx by number, yet: a bad configuration, more replicas than servers
_FULL_WORDS: Final = (
    "no space left",
    "maximum bytes exceeded",
    "maximum messages",
    "insufficient",
    "resources exceeded",
)


class Passing(StoreUnavailable):
    """Trouble that may pass: inside the store a reason to try again, outside one to wait."""

    def __init__(self, operation: str, reason: str) -> None:
        self.reason = reason
        super().__init__(operation, reason)


class ServerError(msgspec.Struct, frozen=True):
    """The ``error`` of an answer."""

    code: int = 500
    err_code: int = 0
    description: str = "no description"

    @property
    def full(self) -> bool:
        words = self.description.lower()
        return self.err_code in _FULL or any(each in words for each in _FULL_WORDS)


def judge(operation: str, error: ServerError) -> StoreError:
    """The exception for an error that the caller has no special use for."""
    reason = f"{error.description} ({error.err_code})"
    if error.full:
        return StoreFull(operation, reason)
    if error.err_code in _FINAL:
        return Refused(operation, reason)
    if error.err_code in _PASSING or error.code == 429 or error.code >= 500:
        return Passing(operation, reason)
    return Refused(operation, reason)


def read_answer(operation: str, payload: bytes) -> tuple[dict[str, Any], ServerError | None]:
    """An answer's JSON, and its error if it has one. An answer that is no JSON object comes from no JetStream
    server.
    """
    try:
        answer = msgspec.json.decode(payload)
        if not isinstance(answer, dict):
            raise ValueError(type(answer).__name__)
        error = answer.get("error")
        return answer, None if error is None else msgspec.convert(error, ServerError)
    except (ValueError, msgspec.MsgspecError):
        raise Passing(operation, f"not an answer of a JetStream server: {payload[:80]!r}") from None
