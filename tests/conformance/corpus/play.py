"""Plays cases against a broker's address, and says which did not end as the model has it.

A client comes in, sends its packet and, behind it, a PINGREQ. What comes until the PINGRESP or the end of the
connection is held against the model. Messages of other cases' clients are passed over. ``play_connects`` has cases
whose packet is the CONNECT itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from tests.conformance.corpus import model
from tests.conformance.corpus.grammar import ID, Case, connect, frame
from tests.conformance.corpus.model import (
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    PUBREC,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)

AT_ONCE = 16  # connections
DEADLINE_S = 20.0  # for one case; a broker that keeps somebody waiting has failed it

# What answers a packet that is right: of PUBLISH by its QoS.
ANSWERS: dict[int, tuple[int | None, ...]] = {
    PUBLISH: (None, PUBACK, PUBREC),
    SUBSCRIBE: (SUBACK,),
    UNSUBSCRIBE: (UNSUBACK,),
}

Packet = tuple[int, int, bytes]  # type, packet id, codes


class Surprise(Exception):
    """The broker did something else."""


async def play(host: str, port: int, cases: Iterable[Case]) -> tuple[int, list[str]]:
    """How many cases there were, and the failures among them, in words."""
    return await _all(cases, lambda number, case: _one(host, port, f"w{number}", case))


async def play_connects(host: str, port: int, cases: Iterable[Case]) -> tuple[int, list[str]]:
    """The same of cases that are a CONNECT."""
    return await _all(cases, lambda _, case: _connect(host, port, case))


async def _all(cases: Iterable[Case], act: Callable[[int, Case], Awaitable[None]]) -> tuple[int, list[str]]:
    todo = list(enumerate(cases))
    found: list[str] = []
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, case: Case) -> None:
        async with places:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await act(number, case)
            except Surprise as surprise:
                found.append(f"level {case.level}, {case.name}, {case.raw[:60].hex()}: {surprise}")
            except TimeoutError:
                found.append(f"level {case.level}, {case.name}, {case.raw[:60].hex()}: no answer and no end")

    await asyncio.gather(*(one(number, case) for number, case in todo))
    return len(todo), found


async def _one(host: str, port: int, client_id: str, case: Case) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(connect(case.level, client_id=client_id.encode()))
        welcome = await _packet(reader, case.level)
        if welcome is None or welcome[0] != model.CONNACK or welcome[2] != b"\0":
            raise Surprise(f"not let in: {welcome}")
        writer.write(case.raw + (b"" if case.fault else frame(PINGREQ << 4, b"")))
        heard: list[Packet] = []
        while (packet := await _packet(reader, case.level)) is not None:
            if packet[0] != PUBLISH:
                heard.append(packet)
            if len(heard) > _answers_to(case):
                break
        _compare(case, heard, ended=packet is None)
    except ConnectionError as error:
        raise Surprise(f"{error}") from None
    finally:
        writer.transport.abort()


async def _connect(host: str, port: int, case: Case) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(case.raw)
        answer = await _packet(reader, case.level)
        got = None if answer is None else (answer[0], answer[2][0] if answer[2] else 0)
        try:
            model.judge_connect(case.raw)
        except model.Refused as refused:
            if got not in {(model.CONNACK, code) for code in refused.codes}:
                raise Surprise(
                    f"got {got}, and not a CONNACK with {_hex(refused.codes)}: {refused}"
                ) from None
        except model.Fault as fault:
            if got is not None:
                raise Surprise(f"got {got}, and not the end: {fault}") from None
        else:
            if got != (model.CONNACK, 0):
                raise Surprise(f"got {got}, and was not let in")
            writer.write(frame(0xE0, b""))
        if await _packet(reader, case.level) is not None:
            raise Surprise("the connection does not end")
    except ConnectionError as error:
        raise Surprise(f"{error}") from None
    finally:
        writer.transport.abort()


def _answers_to(case: Case) -> int:
    """How many packets answer the case, beside the PINGRESP; which may come first, as the store is slower."""
    if case.codes is not None:
        return int(_answer_of(case.raw) is not None)
    if case.fault:
        return 1
    try:
        return len(model.judge(case.level, case.raw).packets)
    except model.Fault:
        return 1


def _compare(case: Case, heard: list[Packet], *, ended: bool) -> None:
    codes = case.fault
    if case.codes is not None:
        kind, number = _answer_of(case.raw), int.from_bytes(ID, "big")
        answered = [] if kind is None else [(kind, number, case.codes)]
        expected = [*answered, (PINGRESP, 0, b"")]
        if sorted(heard) != sorted(expected) or ended:
            raise Surprise(f"got {_shown(heard, ended)}, and not {_shown(expected, False)}")
        return
    if codes is None:
        try:
            answers = model.judge(case.level, case.raw)
        except model.Fault as fault:
            codes = fault.codes
        else:
            expected = [*answers.packets, *([] if answers.ends else [(PINGRESP, 0, b"")])]
            if sorted(heard) != sorted(expected) or ended != answers.ends:
                raise Surprise(f"got {_shown(heard, ended)}, and not {_shown(expected, answers.ends)}")
            return
    told = [packet for packet in heard if packet[0] != DISCONNECT]
    if not ended or told:
        raise Surprise(f"got {_shown(heard, ended)}, and not an end with {_hex(codes)}")
    if case.level == 5 and (len(heard) != 1 or heard[0][2][0] not in codes):
        raise Surprise(f"got {_shown(heard, ended)}, and not a DISCONNECT with {_hex(codes)}")
    if case.level < 5 and heard:
        raise Surprise("a DISCONNECT, which MQTT 3 does not have from a server")


def _answer_of(raw: bytes) -> int | None:
    """The type of the packet that answers one that is right."""
    kind = raw[0] >> 4
    return ANSWERS[kind][raw[0] >> 1 & 3 if kind == PUBLISH else 0]


def _shown(packets: list[Packet], ended: bool) -> str:
    words = [f"{kind}({number}) {codes.hex()}" for kind, number, codes in packets]
    return ", ".join([*words, *(["the end"] if ended else [])]) or "nothing"


def _hex(codes: Iterable[int]) -> str:
    return " or ".join(f"{code:#04x}" for code in sorted(codes))


async def _packet(reader: asyncio.StreamReader, level: int) -> Packet | None:
    """The next packet of the broker: its type, id and codes; None at the end."""
    try:
        first = (await reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await reader.readexactly(1))[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    kind = first >> 4
    if kind == model.CONNACK:
        return kind, 0, body[1:2]
    if kind in (model.PUBACK, model.PUBREC, model.PUBREL, model.PUBCOMP):
        return kind, int.from_bytes(body[:2], "big"), body[2:3]
    if kind in (SUBACK, UNSUBACK):
        rest = model.Reader(body, 2)
        if level == 5:
            rest.take(rest.varint())
        return kind, int.from_bytes(body[:2], "big"), body[rest.at :]
    if kind == DISCONNECT:
        return kind, 0, body[:1] or b"\0"
    return kind, 0, b""
