"""Whether a will that was found in a copy is settled: the store knows, or another broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.harness import DEADLINE_S
from tocsin.broker.delivery import wills as module
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.delivery.wills import WillInquiries
from tocsin.core.delivery.stored_session import StoredSession, encode_session, session_key
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Record, TableSpec
from tocsin.runtime.machines.tasks import Tasks
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.replication import Bequest

GONE = Publication("gone", b"x", 1, "c")


def _fail(error: BaseException) -> None:
    raise error


class Inquiry:
    """A broker that asks, and what the others would say."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.known: set[str] = set()  # names of wills that another broker knows to be settled

    async def know_settled(self, *names: str) -> bool:
        return not self.known.isdisjoint(names)

    async def open(self) -> None:
        self.log = await self._store.log(messages_log("net", None, None))
        self.table = await self._store.table(TableSpec("net-sessions"))
        message_log = MessageLog(self.log, "net", records_max=10, pressure=lambda held: None)
        self._inquiries = WillInquiries(self.table, message_log, self, Tasks("the test", _fail))

    def ask(self, will: Bequest) -> asyncio.Future[bool]:
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._inquiries.ask("c", will, verdict.set_result)
        return verdict


@pytest.fixture
async def inquiry() -> AsyncIterator[Inquiry]:
    store = MemoryStore(MemoryServer())
    made = Inquiry(store)
    await made.open()
    yield made
    await store.close()


async def test_a_will_in_the_log_is_settled_however_old_it_is(inquiry: Inquiry) -> None:
    subject, payload = subject_of("gone", "net"), encode_publication(GONE)
    await inquiry.log.append(
        [Record(subject, payload, "b.0.will"), Record(subject, payload, "b.1.will")],
    )
    asked = (("b.1.will", 1), ("b.2.will", 1), ("b.1.will", 0))
    verdicts = [await inquiry.ask(Bequest(GONE, 600, name, since=since)) for name, since in asked]
    assert verdicts == [True, False, False], "the last one does not know where to look"


async def test_one_other_broker_that_knows_suffices(inquiry: Inquiry) -> None:
    inquiry.known.add("b.1.will")
    assert await inquiry.ask(Bequest(GONE, 600, "b.1.will", since=1))
    assert not await inquiry.ask(Bequest(GONE, 600, "b.2.will", since=1))


async def test_a_will_waits_while_only_a_newer_release_reads_its_session(
    inquiry: Inquiry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_LATER_S", 0.01)
    session = StoredSession("c", uid="later", expiry_s=60, epoch=9)
    await inquiry.table.put(session_key("c"), b"\x09" + encode_session(session)[1:])
    verdict = inquiry.ask(Bequest(GONE, 600, "b.1.will", session="u", epoch=1, since=1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not verdict.done(), "the client may live"
    await inquiry.table.put(session_key("c"), encode_session(session))
    assert await asyncio.wait_for(verdict, DEADLINE_S), "it came since"
