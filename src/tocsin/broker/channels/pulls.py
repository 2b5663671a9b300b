"""Answers clients that ask for results which are there already (``core.channels.pull``).

A client may ask for what it may subscribe to, no more: the rules are about the same topic. An answer is read in the
background, a few at a time for the whole broker (``core.channels.questions``), and its bytes count as pages of the log
until they are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from mqtt5 import PublishPacket

from tocsin.broker.channels.channels import Channels
from tocsin.broker.channels.results import ResultBatch
from tocsin.broker.client import ClientConnection
from tocsin.core.budgets.budget import Kind
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.channels.pull import (
    ANSWER_BYTES,
    ANSWER_TYPE,
    ECHO_MAX_BYTES,
    PULL,
    QUOTA_EXCEEDED,
    Pull,
    PullInvalid,
    echo_bytes,
    read_pull,
)
from tocsin.core.channels.questions import ANSWER_S, PER_CLIENT, Questions
from tocsin.core.delivery.grant import Grant, frame_of
from tocsin.errors import TocsinError, Trimmed
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.topics import FilterInvalid

NOT_AUTHORIZED: Final = 0x87
TOPIC_NAME_INVALID: Final = 0x90
UNSPECIFIED: Final = 0x80
DIRECT: Final = Grant(0, (), False)

Taken = Callable[[], None]
Refuse = Callable[[int, str], None]
Turn = asyncio.Future[None]  # done when an answer may be read


class Pulls:
    """Reads and sends the answers of one broker."""

    def __init__(self, channels: Channels) -> None:
        self.answered = 0  # questions
        self.refused = 0
        self._channels = channels
        self._questions: Questions[ClientConnection, Turn] = Questions()

    def ask(
        self, client: ClientConnection, topic: str, packet: PublishPacket, taken: Taken, refuse: Refuse
    ) -> None:
        """A client asks. ``taken`` acknowledges the question, ``refuse`` rejects it; one of them is called."""
        reply, correlation = packet.response_topic, packet.correlation_data
        try:
            pull = read_pull(topic, packet.payload, reply, correlation)
            if client.full or not self._questions.ask(client):
                problem = f"read the answers to your last questions first; {PER_CLIENT} may wait"
                raise PullInvalid(problem, QUOTA_EXCEEDED)
        except PullInvalid as error:
            self._refuse(refuse, error)
            if reply and error.reason_code != TOPIC_NAME_INVALID:
                self._say_error(client, reply, correlation, error)
            return
        turn: Turn = asyncio.get_running_loop().create_future()
        task = client.spawn(self._answer(client, pull, correlation, turn, taken, refuse))
        # Not in the task: it may be cancelled before it begins, if the client goes at once.
        task.add_done_callback(lambda _: _begin(self._questions.done(client, turn)))

    def _refuse(self, refuse: Refuse, error: PullInvalid) -> None:
        self.refused += 1
        refuse(error.reason_code, error.problem)

    async def _answer(
        self,
        client: ClientConnection,
        pull: Pull,
        correlation: bytes | None,
        turn: Turn,
        taken: Taken,
        refuse: Refuse,
    ) -> None:
        try:
            bound = await self._bound(client, pull)
            taken()
            _begin(self._questions.queue(client, turn))
            await turn
            async with asyncio.timeout(ANSWER_S):
                await self._send(client, pull, bound, correlation)
            self.answered += 1
        except PullInvalid as error:
            self._refuse(refuse, error)
            self._say_error(client, pull.reply, correlation, error)
        except TimeoutError:
            problem = f"to read the results took longer than {ANSWER_S:.0f} s; ask again, or for fewer"
            self._say_error(client, pull.reply, correlation, PullInvalid(problem, UNSPECIFIED))

    async def _bound(self, client: ClientConnection, pull: Pull) -> Bound:
        machine = self._channels.backend.machine
        try:
            bound = machine.check(pull.name, client.may_subscribe)
        except FilterInvalid:
            await self._channels.backend.refresh(
                pull.name
            )  # it may be so new that the watch did not report it
            try:
                bound = machine.check(pull.name, client.may_subscribe)
            except FilterInvalid as error:
                raise PullInvalid(error.problem, TOPIC_NAME_INVALID) from None
        self._check(client, bound)
        return bound

    def _check(self, client: ClientConnection, bound: Bound) -> None:
        if not client.may_receive(bound.topic):
            problem = f"not authorized: the client may not subscribe to {bound.topic!r}"
            raise PullInvalid(problem, NOT_AUTHORIZED)

    async def _send(
        self, client: ClientConnection, pull: Pull, bound: Bound, correlation: bytes | None
    ) -> None:
        """Read one answer and send it. Too little room, or a store that is away, is said in the answer."""
        account = client.account
        if (refusal := account.take(Kind.PAGES, ANSWER_BYTES)) is not None:
            self._say_error(client, pull.reply, correlation, PullInvalid(str(refusal), QUOTA_EXCEEDED))
            return
        held = ANSWER_BYTES
        try:
            batch, trimmed = await self._read(pull, bound)
            self._check(client, bound)  # again: the rules may have changed while it waited
            more = sum(len(result.payload) for _, _, result in batch.results) - held
            if more > 0:
                if (refusal := account.charge(Kind.PAGES, more)) is not None:
                    raise PullInvalid(f"{refusal}; ask for fewer results", QUOTA_EXCEEDED)
                held += more
            said = self._send_results(client, pull, correlation, batch)
            if trimmed:
                said["trimmed"] = True
            self._say(client, pull.reply, correlation, said)
        except PullInvalid as error:
            self._say_error(client, pull.reply, correlation, error)
        except TocsinError as error:
            self._say_error(client, pull.reply, correlation, PullInvalid(str(error), UNSPECIFIED))
        finally:
            account.give(Kind.PAGES, held)

    def _send_results(
        self, client: ClientConnection, pull: Pull, correlation: bytes | None, batch: ResultBatch
    ) -> dict[str, object]:
        """Send the results of an answer; what its last message says."""
        left_out = 0
        for place, notice, result in batch.results:
            publication = self._channels.publication(pull.reply, place, notice, result)
            correlated = msgspec.structs.replace(publication, correlation=correlation)
            frame = frame_of(correlated, client.version, DIRECT)
            if len(frame) > client.send_max_bytes:
                left_out += 1
            else:
                client.queue(frame)
        said: dict[str, object] = {"count": len(batch.results) - left_out, "next": batch.next - 1}
        if pull.since is not None:
            said["more"] = batch.more
        if left_out:
            said["too_large"] = left_out
        return said

    async def _read(self, pull: Pull, bound: Bound) -> tuple[ResultBatch, bool]:
        """The results of an answer, and whether some that it should have are no longer kept."""
        results, k, channel = self._channels.results, bound.k, bound.channel.lower()
        if pull.since is None:
            return await results.newest(k, channel, pull.limit), False
        try:
            return await results.read({k: channel}, pull.since + 1, limit=pull.limit), False
        except Trimmed as error:
            return await results.read({k: channel}, error.oldest, limit=pull.limit), pull.since > 0

    def _say_error(
        self, client: ClientConnection, reply: str, correlation: bytes | None, error: PullInvalid
    ) -> None:
        self._say(client, reply, correlation, {"error": error.problem, "code": error.reason_code})

    def _say(
        self, client: ClientConnection, reply: str, correlation: bytes | None, said: dict[str, object]
    ) -> None:
        """Send the last message of an answer, unless it is larger than the client takes, or a question may have."""
        if echo_bytes(reply, correlation) > ECHO_MAX_BYTES:
            return
        message = Publication(
            reply,
            msgspec.json.encode({"v": int(PULL.text), **said}),
            0,
            "",
            payload_format=1,
            content_type="application/json",
            correlation=correlation,
            user_properties=(("type", ANSWER_TYPE),),
        )
        frame = frame_of(message, client.version, DIRECT)
        if len(frame) <= client.send_max_bytes:
            client.queue(frame)


def _begin(turns: Iterable[Turn]) -> None:
    for turn in turns:
        if not turn.done():  # else nobody waits any more
            turn.set_result(None)
