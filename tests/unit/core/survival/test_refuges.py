"""Which brokers one can send its clients to, against a choice made by sorting everything for each question."""

from __future__ import annotations

import zlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.refuges import FULL, REFUGES_MAX, STEP, RefugePlan, checksum, reference
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme

PLAIN = (Entrance(Scheme.MQTT, "plain:1883"),)
BOTH = (Entrance(Scheme.MQTT, "both:1883"), Entrance(Scheme.MQTTS, "both:8883"))


def broker(
    name: str,
    cluster: str = "north",
    role: Role = Role.EDGE,
    entrances: tuple[Entrance, ...] = PLAIN,
) -> BrokerInfo:
    return BrokerInfo(name, cluster, role, "127.0.0.1", 1, entrances)


some_brokers = st.lists(
    st.builds(
        broker,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["north", "south"]),
        st.sampled_from(Role),
        st.sampled_from([(), PLAIN, BOTH]),
    ),
    unique_by=lambda each: each.id,
    max_size=8,
)


@given(some_brokers, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, FULL + 1)))
def test_the_nearest_then_the_emptiest_with_room_are_chosen(
    brokers: list[BrokerInfo], loads: dict[str, int]
) -> None:
    plan = RefugePlan()
    plan.rank(brokers, loads)
    for asking in brokers:
        able = [
            each
            for each in brokers
            if each is not asking
            and each.entrances
            and each.role != Role.STANDBY
            and loads.get(each.id, 0) < FULL
        ]
        able.sort(
            key=lambda each: (
                each.cluster != asking.cluster,
                each.role != Role.EDGE,
                loads.get(each.id, 0) // STEP,
                each.id,
            )
        )
        chosen = tuple(able[:REFUGES_MAX])
        assert plan.of(asking) == chosen
        assert plan.news(asking, checksum(reversed(chosen))) is None, "it knows them, in whichever order"
        assert plan.news(asking, checksum(chosen) + 1) == chosen


def test_a_full_broker_is_no_refuge_from_the_next_ranking_on() -> None:
    brokers, loads = [broker(name) for name in "abc"], {"b": 0}
    plan = RefugePlan()
    plan.rank(brokers, loads)
    assert plan.of(brokers[0]) == (brokers[1], brokers[2])
    loads["b"] = FULL
    plan.rank(brokers, loads)
    assert plan.of(brokers[0]) == (brokers[2],)


def test_clients_are_spread_over_the_brokers_of_one_cluster() -> None:
    near = [broker(name, entrances=(Entrance(Scheme.MQTT, f"{name}:1"),)) for name in "ab"]
    far = broker("c", "south", entrances=(Entrance(Scheme.MQTT, "c:1"),))
    assert [reference([*near, far], Scheme.MQTT, turn) for turn in range(3)] == ["a:1", "b:1", "a:1"]
    assert reference([far], Scheme.MQTT, 5) == "c:1"


def test_a_client_is_sent_only_where_its_scheme_is_spoken() -> None:
    refuges = [broker("a"), broker("b", "south", entrances=BOTH)]
    assert reference(refuges, Scheme.MQTTS, 0) == "both:8883"
    assert reference(refuges, Scheme.WSS, 0) is None
    assert reference([], Scheme.MQTT, 0) is None


class OldInfo(msgspec.Struct, frozen=True):
    """A broker as the previous release knows it."""

    id: str
    cluster: str
    role: Role
    host: str
    port: int
    entrances: tuple[Entrance, ...] = ()
    certified: str = ""


def test_the_previous_release_has_the_same_checksum_of_refuges() -> None:
    info = BrokerInfo("a", "n", Role.EDGE, "h", 1, (Entrance(Scheme.MQTT, "h:2"),), may_stand_by=True)
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=OldInfo)
    assert checksum((info,)) == zlib.crc32(msgspec.msgpack.encode(old))
