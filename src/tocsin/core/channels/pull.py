"""A pull: a client's question for results of a channel that are there already.

    $results/Name/value?…        published with a JSON object, or nothing; the values as in ``$channel/…``

    {"newest": 10}               the newest results
    {"since": 7340032, "limit": 100}    the results behind a position, oldest first
    {"reply": "answers/me"}      the topic of the answer; in MQTT 5 the response topic says it

The answer is a message for each result, in the order of positions, and a last one that says how many there were and
where to go on. All of them go to the client that asked, and to nobody else.

    pull = read_pull(topic, payload, response_topic, correlation)       raises PullInvalid
    pull.name                                              the subscription whose results are meant
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from tocsin.model.versions import UNREADABLE, Stated
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX, RESULTS_PREFIX, TopicInvalid, check_topic

NEWEST: Final = 10  # results, if a question states no number
RESULTS_MAX: Final = 1_000  # of one answer
ANSWER_BYTES: Final = 1 << 20  # of their payloads; the first result is sent however large it is
PAYLOAD_MAX_BYTES: Final = 4_096  # of a question
ECHO_MAX_BYTES: Final = 1_024  # of the reply topic and the correlation data, which every result repeats
PAYLOAD_INVALID: Final = 0x99
QUOTA_EXCEEDED: Final = 0x97
TOPIC_INVALID: Final = 0x90
ANSWER_TYPE: Final = "tocsin.channel.results"  # the type of an answer's last message
PULL: Final = Stated("a question for results")

ResultT = TypeVar("ResultT", bound="Sized")


class Sized(Protocol):
    """A result, of which only the size matters."""

    @property
    def payload(self) -> bytes: ...


class PullInvalid(Exception):
    """A question that cannot be answered."""

    def __init__(self, problem: str, reason_code: int = PAYLOAD_INVALID) -> None:
        super().__init__(problem)
        self.problem = problem
        self.reason_code = reason_code


class Pull(msgspec.Struct, frozen=True):
    """A question for results of one backend subscription."""

    name: str  # of the subscription that it is about: ``$channel/…``
    reply: str  # the topic of the answer
    limit: int
    since: int | None = None  # results behind this position; None: the newest


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object of a question."""

    newest: int | None = None
    since: int | None = None
    limit: int | None = None
    reply: str | None = None
    v: str | int | None = None


_DECODER: Final = msgspec.json.Decoder(_Asked)


def read_pull(
    topic: str, payload: bytes, response_topic: str | None, correlation: bytes | None = None
) -> Pull:
    """Read what a client published to ``$results/…``. Raises ``PullInvalid``."""
    if len(payload) > PAYLOAD_MAX_BYTES:
        raise PullInvalid(
            f"a question for results has at most {PAYLOAD_MAX_BYTES} bytes; this one has {len(payload)}"
        )
    try:
        asked = _DECODER.decode(payload) if payload.strip() else _Asked()
        PULL.check(None if asked.v is None else str(asked.v))
    except (*UNREADABLE, msgspec.MsgspecError, UnicodeError) as error:
        example = '{"newest": 10} or {"since": 0, "limit": 100}'
        raise PullInvalid(f"a question for results is a JSON object such as {example}: {error}") from None
    if asked.newest is not None and (asked.since is not None or asked.limit is not None):
        raise PullInvalid("ask for the newest results, or for those since a position; not for both")
    reply = _reply(response_topic or asked.reply)
    if (size := echo_bytes(reply, correlation)) > ECHO_MAX_BYTES:
        raise PullInvalid(
            f"the reply topic and the correlation data have {size} bytes together; "
            f"every result repeats them, so {ECHO_MAX_BYTES} is the most",
            QUOTA_EXCEEDED,
        )
    return Pull(
        CHANNEL_PREFIX + topic.removeprefix(RESULTS_PREFIX),
        reply,
        _number(asked.limit if asked.newest is None else asked.newest, asked.since),
        _position(asked.since),
    )


def echo_bytes(reply: str | None, correlation: bytes | None) -> int:
    """What every message of an answer repeats of the question."""
    return len((reply or "").encode()) + len(correlation or b"")


def _reply(topic: str | None) -> str:
    if not topic:
        raise PullInvalid('a question for results needs a response topic, or {"reply": "a/topic"}')
    try:
        check_topic(topic)
    except TopicInvalid as error:
        raise PullInvalid(f"the answer's {error}", TOPIC_INVALID) from None
    return topic


def _number(given: int | None, since: int | None) -> int:
    if given is None:
        return NEWEST if since is None else RESULTS_MAX
    if not 0 < given <= RESULTS_MAX:
        raise PullInvalid(f"an answer has 1 to {RESULTS_MAX} results; {given} were asked for")
    return given


def _position(since: int | None) -> int | None:
    if since is not None and not 0 <= since < 1 << 63:
        raise PullInvalid(f"a position is a number from 0 on, as results state it; not {since}")
    return since


def newest_within(results: Sequence[ResultT], limit: int, room: int = ANSWER_BYTES) -> Sequence[ResultT]:
    """The last results, at most ``limit`` and about ``room`` bytes of them, but one at least if there is one."""
    first = len(results)
    while first > 0 and len(results) - first < limit:
        room -= len(results[first - 1].payload)
        if room < 0 and first < len(results):
            break
        first -= 1
    return results[first:]
