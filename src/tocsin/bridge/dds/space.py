"""One DDS domain, seen through cyclonedds: the only module that imports it.

A **taker** thread waits for whatever happens in the domain, takes it and hands it to the event loop. What may take long
(types that a peer has to be asked for, entities) is done by a **maker** thread, what late readers get is found by a
**historian** thread, and samples are written by a **writer** thread, in order. Events for the mirror come out on the
event loop's thread alone.

Raw samples are taken and written as CDR, so that they are never decoded. cyclonedds has that in functions of its own
(``ddspy_…``), which are no public interface: ``pyproject.toml`` caps its version, and a test fails if they change.

A topic needs its type. It is asked from an endpoint that knows it. For an endpoint that tells no type, and has no keys,
a class of the same name stands in: its own data are never looked at. With keys that is not possible.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import structlog
from cyclonedds._clayer import ddspy_dispose_ts, ddspy_take, ddspy_unregister_instance_ts, ddspy_write_ts
from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsParticipant,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)
from cyclonedds.core import (
    DDSException,
    DDSStatus,
    GuardCondition,
    InstanceState,
    ReadCondition,
    SampleState,
    ViewState,
    WaitSet,
)
from cyclonedds.domain import DomainParticipant
from cyclonedds.dynamic import get_types_for_typeid
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import uint8
from cyclonedds.internal import DDS, dds_c_t
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic

from tocsin.bridge.dds.mapping import Sample, State
from tocsin.bridge.dds.quality import FOREVER, Durability, Liveliness, Quality
from tocsin.bridge.dds.signals import (
    BridgeFound,
    BridgeGone,
    Endpoint,
    EndpointFound,
    EndpointGone,
    Made,
    MakeFailed,
    MakeReader,
    MakeWriter,
    Replay,
    Replayed,
    Taken,
    Write,
    WriteFailed,
    WriterLively,
    Written,
)
from tocsin.bridge.dds.typed import STAND_IN, NotTyped, from_json, key_of, to_json
from tocsin.core.machine import Event
from tocsin.errors import OperatorError

MARK: Final = b"tocsin:"  # user data of bridges' participants: their network and their name follow
ANY: Final = SampleState.Any | ViewState.Any | InstanceState.Any
TAKE_MAX: Final = 200  # samples at once
WAIT_NS: Final = 200_000_000  # of the taker, for anything to happen
TYPE_WAIT_NS: Final = 2_000_000_000
MATCH_S: Final = 1.0  # until a new writer is used, though no reader has matched
HISTORY_NS: Final = 3_000_000_000
FIRST_S: Final = 1.5  # until the first of it comes
QUIET_S: Final = 0.2  # after which there is no more
LONGEST_S: Final = 5.0  # of all of it
POLL_S: Final = 0.02
SAMPLES_MAX: Final = 10_000  # kept by a reader or writer
GONE_MAX: Final = 1_000  # writers that are gone, and whose samples may still come
HANDLE: Final = (1 << 64) - 1  # the bits of a handle
LEAST_S, MOST_S = 0.01, 3_600.0  # between two assertions of liveliness
BLOCKING_NS: Final = 1_000_000_000  # of a write, while a reliable reader has no room
KEYED: Final = frozenset((0x02, 0x07))  # the last byte of a GUID: writers and readers of keyed topics
_DURABILITY: Final = {
    Durability.VOLATILE: Policy.Durability.Volatile,
    Durability.TRANSIENT_LOCAL: Policy.Durability.TransientLocal,
    # What is kept by a service in DDS, the network keeps; towards DDS a writer of ours keeps it.
    Durability.TRANSIENT: Policy.Durability.TransientLocal,
    Durability.PERSISTENT: Policy.Durability.TransientLocal,
}
_LEVELS: Final = (
    (Durability.TRANSIENT_LOCAL, Policy.Durability.TransientLocal),
    (Durability.TRANSIENT, Policy.Durability.Transient),
    (Durability.PERSISTENT, Policy.Durability.Persistent),
)
_KINDS: Final = (
    (Liveliness.AUTOMATIC, Policy.Liveliness.Automatic),
    (Liveliness.BY_PARTICIPANT, Policy.Liveliness.ManualByParticipant),
    (Liveliness.BY_TOPIC, Policy.Liveliness.ManualByTopic),
)
_STATES: Final = {
    int(InstanceState.NotAliveDisposed): State.DISPOSED,
    int(InstanceState.NotAliveNoWriters): State.UNREGISTERED,
}


class Space:
    """The endpoints of one domain, and ours among them. ``tell`` is called on the event loop's thread."""

    def __init__(self, domain: int, network: str, name: str, tell: Callable[[Event], None]) -> None:
        self._domain = domain
        self._mark = MARK + f"{network}/".encode()
        self._name = name
        self._tell = tell
        self._log = structlog.get_logger()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._participant: Any = None  # a DomainParticipant while we are in the domain
        self._stop = threading.Event()
        self._paused = False
        self._taker = threading.Thread(target=self._take_all, name="dds-taker", daemon=True)
        self._maker = ThreadPoolExecutor(1, "dds-maker")
        self._writer = ThreadPoolExecutor(1, "dds-writer")
        self._historian = ThreadPoolExecutor(1, "dds-historian")
        self._bridges: dict[
            str, str
        ] = {}  # participants of bridges, of any network → name; ours is one of them
        self._endpoints: dict[str, Any] = {}  # others' endpoints, as they were told
        self._handles: dict[int, str] = {}  # handle of a writer → its GUID, also of some that are gone
        self._mirrors: set[int] = set()  # handles of bridges' writers: what they wrote is never taken
        self._gone: deque[int] = deque()  # handles of those
        self._asserting: dict[str, asyncio.TimerHandle] = {}  # writers whose liveliness we assert
        self._types: dict[tuple[str, bytes], Any] = {}
        self._topics: dict[tuple[str, int], Topic[Any]] = {}
        self._readers: dict[str, tuple[DataReader[Any], ReadCondition]] = {}
        self._writers: dict[str, DataWriter[Any]] = {}
        self._leases: dict[str, int] = {}  # of our writers, in nanoseconds
        self._batch: list[Write] = []

    # ── for the process ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Join the domain. ``OperatorError`` if that is not possible."""
        self._loop = asyncio.get_running_loop()
        mark = self._mark + self._name.encode()
        try:
            self._participant = DomainParticipant(self._domain, Qos(Policy.Userdata(mark)))
            self._builtin = [
                BuiltinDataReader(self._participant, topic)
                for topic in (
                    BuiltinTopicDcpsParticipant,
                    BuiltinTopicDcpsPublication,
                    BuiltinTopicDcpsSubscription,
                )
            ]
            self._waitset = WaitSet(self._participant)
            self._wake = GuardCondition(self._participant)
        except DDSException as error:
            remedy = "Check --domain, and that the interface in CYCLONEDDS_URI can multicast"
            raise OperatorError(f"the DDS domain {self._domain} cannot be joined: {error}", remedy) from None
        self._waitset.attach(self._wake)
        for reader in self._builtin:
            self._waitset.attach(
                ReadCondition(reader, SampleState.NotRead | ViewState.Any | InstanceState.Any)
            )
        self._taker.start()

    def close(self) -> None:
        """Leave the domain."""
        self._stop.set()
        for timer in self._asserting.values():
            timer.cancel()
        if self._taker.is_alive():
            self._wake.set(True)
            self._taker.join(5)
        self._writer.shutdown(wait=True)
        self._maker.shutdown(wait=True, cancel_futures=True)
        self._historian.shutdown(wait=True, cancel_futures=True)
        self._readers.clear()
        self._writers.clear()
        if self._participant is not None:
            self._participant.__del__()  # now, so that the others hear of it, and not when nobody refers to it
            self._participant = None

    def make(self, wish: MakeReader | MakeWriter) -> None:
        self._maker.submit(self._make, wish)

    def drop(self, entity: str) -> None:
        self._maker.submit(self._drop, entity)

    def replay(self, wish: Replay) -> None:
        self._historian.submit(self._replay, wish)

    def lively(self, entity: str, lively: bool) -> None:
        """Assert a writer's liveliness from now on, or no more."""
        timer = self._asserting.pop(entity, None)
        if timer is not None:
            timer.cancel()
        writer = self._writers.get(entity)
        if not lively or writer is None or self._stop.is_set():
            return
        DDS._dll_handle.dds_assert_liveliness(writer._ref)
        assert self._loop is not None
        every_s = min(max(self._leases[entity] / 3e9, LEAST_S), MOST_S)
        self._asserting[entity] = self._loop.call_later(every_s, self.lively, entity, True)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._wake.set(True)

    def write(self, wish: Write) -> None:
        """Write soon: what is asked for in one turn of the loop is one batch."""
        if not self._batch:
            assert self._loop is not None
            self._loop.call_soon(self._flush)
        self._batch.append(wish)

    def json_of(self, entity: str, publication_data: bytes, *, key: bool) -> bytes:
        """A reader's sample as JSON. ``NotTyped`` if its type is not known."""
        held = self._readers.get(entity)
        if held is None:
            raise NotTyped("its reader is gone")
        return to_json(held[0].topic.data_type, publication_data, key=key)

    # ── the threads ─────────────────────────────────────────────────────────────────────────────────────────

    def _post(self, event: Event) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed() and not self._stop.is_set():
            loop.call_soon_threadsafe(self._tell, event)

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        self._writer.submit(self._write_all, batch)

    def _take_all(self) -> None:
        participants, publications, subscriptions = self._builtin
        while not self._stop.is_set():
            try:
                self._waitset.wait(WAIT_NS)
                self._wake.set(False)
                for each in participants.take(N=100):
                    self._participant_told(each)
                for each in publications.take(N=500):
                    self._endpoint_told(each, writes=True)
                for each in subscriptions.take(N=500):
                    self._endpoint_told(each, writes=False)
                if self._paused:
                    time.sleep(0.01)  # what waits would wake us at once
                    continue
                for entity, (reader, _) in tuple(self._readers.items()):
                    self._look_after(reader)
                    self._take_from(entity, reader)
            except DDSException as error:
                self._log.warning("the DDS domain cannot be read", problem=str(error))
                time.sleep(0.1)

    def _participant_told(self, told: Any) -> None:
        key = told.key.hex
        if told.sample_info.instance_state != InstanceState.Alive:
            if self._bridges.pop(key, None) is not None:
                self._post(BridgeGone(key=key))
            return
        data = told.qos[Policy.Userdata]
        mark = b"" if data is None else data.data
        if not mark.startswith(MARK):
            return
        self._bridges[key] = mark.decode("utf-8", "replace")
        name = mark.removeprefix(self._mark).decode("utf-8", "replace")
        if mark.startswith(self._mark) and name != self._name:
            self._post(BridgeFound(key=key, name=name))

    def _endpoint_told(self, told: Any, *, writes: bool) -> None:
        key = told.key.hex
        if told.sample_info.instance_state != InstanceState.Alive:
            self._mirrors.discard(told.sample_info.instance_handle)
            if self._endpoints.pop(key, None) is not None:
                self._post(EndpointGone(key=key))
                if writes:  # what it wrote last is still to be taken
                    self._gone.append(told.sample_info.instance_handle)
                    if len(self._gone) > GONE_MAX:
                        self._handles.pop(self._gone.popleft(), None)
            return
        if told.participant_key.hex in self._bridges or told.topic_name.startswith("DCPS"):
            if writes:
                self._mirrors.add(told.sample_info.instance_handle)
            return
        self._endpoints[key] = told
        if writes:
            self._handles[told.sample_info.instance_handle] = key
        endpoint = Endpoint(key, writes, told.topic_name, told.type_name, quality_of(told.qos))
        self._post(EndpointFound(endpoint=endpoint))

    def _take_from(self, entity: str, reader: DataReader[Any]) -> None:
        while not self._stop.is_set() and not self._paused:
            samples = self._samples(reader)
            if samples:
                self._post(Taken(entity=entity, samples=samples))
            if len(samples) < TAKE_MAX:
                return

    def _samples(self, reader: DataReader[Any]) -> tuple[Sample, ...]:
        taken = ddspy_take(reader._ref, ANY, TAKE_MAX)
        if isinstance(taken, int):
            raise DDSException(taken, "while samples were taken")
        # A dispose comes by itself only if nothing else of its instance does: else the last sample's state says it.
        last = {info.instance_handle: place for place, (_, info) in enumerate(taken)}
        found: list[Sample] = []
        for place, (data, info) in enumerate(taken):
            if info.publication_handle in self._mirrors:
                continue
            state = _STATES.get(int(info.instance_state), State.ALIVE)
            time_ns, writer = int(info.source_timestamp), self._handles.get(info.publication_handle, "")
            if info.valid_data:
                found.append(Sample(bytes(data), time_ns, writer))
            if state is State.ALIVE or last[info.instance_handle] != place:
                continue
            key = bytes(data) if not info.valid_data else key_of(reader.topic.data_type, bytes(data))
            if key:
                found.append(Sample(key, time_ns + info.valid_data, writer, state))
        return tuple(found)

    def _look_after(self, reader: DataReader[Any]) -> None:
        """Tell which writers of a reader are alive, if that has changed.

        The status has the last change alone. Others of the same moment are known by what is left: all or none.
        """
        status = dds_c_t.liveliness_changed_status()
        code = DDS._dll_handle.dds_get_liveliness_changed_status(reader._ref, ctypes.byref(status))
        if code < 0 or not (status.alive_count_change or status.not_alive_count_change):
            return
        keys = [self._handles.get(status.last_publication_handle & HANDLE)]  # it comes signed
        if abs(status.alive_count_change) > 1 and not (status.alive_count and status.not_alive_count):
            keys = [self._handles.get(each) for each in reader.get_matched_publications()]
        lively = status.alive_count_change > 0
        if lively or status.not_alive_count_change > 0:  # else it is gone, which is told otherwise
            for key in keys:
                if key is not None:
                    self._post(WriterLively(key=key, lively=lively))

    # ── the maker ───────────────────────────────────────────────────────────────────────────────────────────

    def _make(self, wish: MakeReader | MakeWriter) -> None:
        try:
            topic = self._topic(wish.topic, wish.type_name, wish.like)
            if isinstance(wish, MakeReader):
                self._make_reader(wish, topic)
            else:
                self._make_writer(wish, topic)
        except NotTyped as error:
            self._post(MakeFailed(entity=wish.entity, reason=str(error), final=error.final))
        except (DDSException, TypeError, ValueError) as error:
            self._post(MakeFailed(entity=wish.entity, reason=str(error)[:500]))
        else:
            self._post(Made(entity=wish.entity))

    def _make_reader(self, wish: MakeReader, topic: Topic[Any]) -> None:
        reader = self._reader(topic, wish.quality)
        condition = ReadCondition(reader, ANY)
        self._readers[wish.entity] = reader, condition
        reader.set_status_mask(DDSStatus.LivelinessChanged)
        self._waitset.attach(condition)
        self._waitset.attach(reader)
        self._wake.set(True)

    def _reader(self, topic: Topic[Any], quality: Quality) -> DataReader[Any]:
        subscriber = Subscriber(self._participant, Qos(*_partition(quality)))
        return DataReader(subscriber, topic, qos=reader_qos(quality))

    def _make_writer(self, wish: MakeWriter, topic: Topic[Any]) -> None:
        publisher = Publisher(self._participant, Qos(*_partition(wish.quality)))
        writer = DataWriter(publisher, topic, qos=writer_qos(wish.quality))
        self._leases[wish.entity] = wish.quality.lease_ns
        self._writers[wish.entity] = writer
        deadline = time.monotonic() + MATCH_S
        while time.monotonic() < deadline and not self._stop.is_set():
            if writer.get_publication_matched_status().current_count:  # type: ignore[no-untyped-call]
                return
            time.sleep(0.005)

    def _drop(self, entity: str) -> None:
        held = self._readers.pop(entity, None)
        if held is not None:
            self._waitset.detach(held[1])
            self._waitset.detach(held[0])
        writer = self._writers.pop(entity, None)
        self._leases.pop(entity, None)
        if writer is not None:
            self._writer.submit(lambda: writer)  # it goes when what was asked for before is written

    def _replay(self, wish: Replay) -> None:
        try:
            late = self._reader(self._topic(wish.topic, wish.type_name, wish.like), wish.quality)
            late.wait_for_historical_data(HISTORY_NS)
            found = self._kept(late)
        except (DDSException, NotTyped) as error:
            self._log.warning("what late readers get cannot be found", topic=wish.topic, problem=str(error))
            return
        self._post(Replayed(topic=wish.topic, to=wish.to, samples=tuple(found)))

    def _kept(self, late: DataReader[Any]) -> list[Sample]:
        """What a new reader finds: until there is no more, or only what is written meanwhile."""
        found: list[Sample] = []
        began_ns = time.time_ns()
        end = time.monotonic() + LONGEST_S
        # Writers that the reader has not met: what they kept comes a moment later.
        over = time.monotonic() + FIRST_S
        while len(found) < SAMPLES_MAX and time.monotonic() < min(over, end) and not self._stop.is_set():
            some = self._samples(late)
            found += [each for each in some if each.writer]
            if some and all(each.time_ns > began_ns for each in some):
                break
            if some:
                over = time.monotonic() + QUIET_S
            else:
                time.sleep(POLL_S)
        return found

    def _topic(self, name: str, type_name: str, like: Iterable[str]) -> Topic[Any]:
        kind = self._type(type_name, like)
        topic = self._topics.get((name, id(kind)))
        if topic is None:
            topic = self._topics[name, id(kind)] = Topic(self._participant, name, kind)
        return topic

    def _type(self, type_name: str, like: Iterable[str]) -> Any:
        """The class of a type, as one of these endpoints tells it."""
        keyed, problem = False, "the endpoint is gone"
        for key in like:
            told = self._endpoints.get(key)
            if told is None:
                continue
            keyed = keyed or told.key.bytes[-1] in KEYED
            if told.type_id is None:
                problem = ""
                continue
            known = type_name, told.type_id.serialize(use_version_2=True)
            kind = self._types.get(known)
            if kind is None:
                try:
                    kind, _ = get_types_for_typeid(self._participant, told.type_id, TYPE_WAIT_NS)
                except DDSException as error:
                    problem = str(error)
                    continue
                self._types[known] = kind
            return kind
        if problem:
            raise NotTyped(f"its type {type_name} was not told: {problem}", final=False)
        if keyed:
            raise NotTyped(f"its vendor does not tell the type {type_name}, and it has keys")
        stand_in = self._types.get((type_name, b""))
        if stand_in is None:
            stand_in = self._types[type_name, b""] = _stand_in(type_name)
        return stand_in

    # ── the writer ──────────────────────────────────────────────────────────────────────────────────────────

    def _write_all(self, batch: list[Write]) -> None:
        done: list[int] = []
        for wish in batch:
            writer = self._writers.get(wish.entity)
            problem = "" if writer is not None else "its writer is gone"
            if writer is not None:
                try:
                    problem = self._write(writer, wish)
                except (DDSException, NotTyped) as error:
                    problem = str(error)
            if problem:
                self._post(WriteFailed(token=wish.token, problem=problem[:500]))
            else:
                done.append(wish.token)
        if done:
            self._post(Written(tokens=tuple(done)))

    def _write(self, writer: DataWriter[Any], wish: Write) -> str:
        sample = wish.sample
        data = sample.data
        if wish.content_type == "application/json":
            data = from_json(writer.data_type, data, key=sample.state is not State.ALIVE)
        data += b"\0" * (-len(data) % 4)
        act = {
            State.ALIVE: ddspy_write_ts,
            State.DISPOSED: ddspy_dispose_ts,
            State.UNREGISTERED: ddspy_unregister_instance_ts,
        }[sample.state]
        code = act(writer._ref, data, sample.time_ns)
        return "" if code is None or code >= 0 else str(DDSException(code, f"while {wish.entity} wrote"))


def _stand_in(type_name: str) -> Any:
    """A class for a type that nobody tells: it has its name, and one field that is never looked at."""

    def fill(names: dict[str, Any]) -> None:
        names["__annotations__"] = {"data": uint8}

    name = type_name.replace("::", ".")
    return dataclasses.dataclass(types.new_class(STAND_IN, (IdlStruct,), {"typename": name}, fill))


# ── quality ──────────────────────────────────────────────────────────────────────────────────────────────────


def quality_of(qos: Any) -> Quality:
    """An endpoint's quality, as its vendor tells it; what is not told is DDS's default."""
    # ``qos[kind]`` is the policy of that scope, whichever kind of it, or None.
    durability = qos[Policy.Durability.Volatile]
    liveliness = qos[Policy.Liveliness.Automatic]
    strength = qos[Policy.OwnershipStrength]
    deadline = qos[Policy.Deadline]
    budget = qos[Policy.LatencyBudget]
    lifespan = qos[Policy.Lifespan]
    partition = qos[Policy.Partition]
    service = qos[Policy.DurabilityService]
    form = qos[Policy.DataRepresentation]
    return Quality(
        reliable=isinstance(qos[Policy.Reliability.BestEffort], Policy.Reliability.Reliable),
        durability=next((level for level, policy in _LEVELS if policy == durability), Durability.VOLATILE),
        exclusive=qos[Policy.Ownership.Shared] == Policy.Ownership.Exclusive,
        strength=0 if strength is None else max(strength.strength, 0),
        deadline_ns=FOREVER if deadline is None else deadline.deadline,
        budget_ns=0 if budget is None else budget.budget,
        liveliness=next((level for level, kind in _KINDS if type(liveliness) is kind), Liveliness.AUTOMATIC),
        lease_ns=FOREVER if liveliness is None else liveliness.lease_duration,
        lifespan_ns=FOREVER if lifespan is None else lifespan.lifespan,
        by_source=qos[Policy.DestinationOrder.BySourceTimestamp] == Policy.DestinationOrder.BySourceTimestamp,
        partitions=() if partition is None else tuple(each for each in partition.partitions if each),
        depth=1 if service is None else getattr(service.history, "depth", 0),
        xcdr2=form is not None and form.use_xcdrv2_representation and not form.use_cdrv0_representation,
    )


def reader_qos(quality: Quality) -> Qos:
    """Of a reader of ours."""
    return Qos(
        Policy.Reliability.Reliable(BLOCKING_NS) if quality.reliable else Policy.Reliability.BestEffort,
        _DURABILITY[quality.durability],
        Policy.Ownership.Exclusive if quality.exclusive else Policy.Ownership.Shared,
        Policy.History.KeepAll,
        Policy.IgnoreLocal.Participant,  # our mirrors are in this network, too
        Policy.ResourceLimits(max_samples=SAMPLES_MAX),
        Policy.DataRepresentation(use_cdrv0_representation=True, use_xcdrv2_representation=True),
        Policy.LatencyBudget(quality.budget_ns),
    )


def writer_qos(quality: Quality) -> Qos:
    """Of a writer of ours: it keeps for late readers what they would get of the readers' depth."""
    depth = quality.depth or 0
    history = Policy.History.KeepLast(depth) if depth else Policy.History.KeepAll
    # One that speaks for its whole participant would speak for all mirrors at once; by topic is stricter, and fits.
    by_hand = quality.liveliness is not Liveliness.AUTOMATIC
    liveliness: Any = dict(_KINDS)[Liveliness.BY_TOPIC if by_hand else Liveliness.AUTOMATIC]
    policies: list[Any] = [
        Policy.Reliability.Reliable(BLOCKING_NS) if quality.reliable else Policy.Reliability.BestEffort,
        _DURABILITY[quality.durability],
        Policy.Ownership.Exclusive if quality.exclusive else Policy.Ownership.Shared,
        Policy.Deadline(quality.deadline_ns),
        Policy.LatencyBudget(quality.budget_ns),
        liveliness(quality.lease_ns),
        Policy.History.KeepAll if quality.reliable else Policy.History.KeepLast(max(depth, 1)),
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.DataRepresentation(
            use_cdrv0_representation=not quality.xcdr2, use_xcdrv2_representation=quality.xcdr2
        ),
    ]
    if quality.lifespan_ns < FOREVER:
        policies.append(Policy.Lifespan(quality.lifespan_ns))
    if quality.by_source:
        policies.append(Policy.DestinationOrder.BySourceTimestamp)
    if quality.exclusive:
        policies.append(Policy.OwnershipStrength(quality.strength))
    if quality.durability is not Durability.VOLATILE:
        policies.append(Policy.DurabilityService(0, history, SAMPLES_MAX, -1, -1))
    return Qos(*policies)


def _partition(quality: Quality) -> tuple[Any, ...]:
    return (Policy.Partition(quality.partitions),) if quality.partitions else ()
