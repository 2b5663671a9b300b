"""What the network does to messages, for any link, weather and cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.network import Message
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.latency import Latency
from tocsin.sim.network import Cut, Link, Network, Weather, encoded_size

NODES = ("a", "b", "c", "d")


class Ping(Message, frozen=True):
    text: str = ""


nodes = st.sampled_from(NODES)
sides = st.frozensets(nodes, min_size=1, max_size=3)
directions = st.sampled_from(("both", "out", "in"))
cuts = st.builds(Cut, sides, st.none() | sides, directions)
rates = st.integers(0, MILLION)
latencies = st.builds(lambda a, b: Latency.uniform(a, a + b), st.integers(0, 5_000), st.integers(0, 5_000))
links = st.builds(
    Link,
    latencies,
    rates,
    rates,
    rates,
    st.integers(1, 10_000),
    st.none() | st.integers(1, 10**6),
    st.booleans(),
)


def network(link: Link, seed: int = 0) -> Network:
    return Network(Chance(seed, "network"), lambda sender, receiver: link)


def send(net: Network, message: Message | None = None, now_us: int = 0) -> list[int]:
    return net.arrivals(net.path("a", "b"), "a", "b", message or Ping(), now_us)


@given(links, st.integers(), st.integers(0, 10**9))
def test_nothing_arrives_before_the_latency_and_at_most_twice(link: Link, seed: int, now_us: int) -> None:
    arrivals = send(network(link, seed), now_us=now_us)
    assert len(arrivals) <= 2
    assert all(at_us >= now_us + link.latency.least_us for at_us in arrivals)


@given(cuts, nodes, nodes)
def test_a_cut_stops_what_its_definition_says(cut: Cut, sender: str, receiver: str) -> None:
    out = sender in cut.side and receiver not in cut.side
    back = receiver in cut.side and sender not in cut.side
    if cut.others is not None:
        out = out and receiver in cut.others
        back = back and sender in cut.others
    wanted = (out and cut.direction in ("both", "out")) or (back and cut.direction in ("both", "in"))
    assert cut.stops(sender, receiver) is wanted


@given(st.lists(cuts, min_size=1, max_size=4), st.data())
def test_when_every_fault_is_removed_the_network_is_calm_again(
    faults: list[Cut], data: st.DataObject
) -> None:
    net = network(Link())
    for cut in faults:
        net.add(cut)
    weather = Weather(loss_ppm=1)
    net.add(weather)
    assert not net.calm
    for cut in data.draw(st.permutations(faults)):
        net.remove(cut)
    net.remove(weather)
    assert (net.calm, net.blocked("a", "b")) == (True, False)


@given(st.lists(st.integers(0, 1_000), min_size=2).map(sorted), st.integers())
def test_a_fifo_link_keeps_the_order(times: list[int], seed: int) -> None:
    net = network(Link(Latency.uniform(0, 10_000), fifo=True), seed)
    arrivals = [send(net, now_us=now_us)[0] for now_us in times]
    assert arrivals == sorted(arrivals)


@given(st.lists(st.text(max_size=200), min_size=1, max_size=20), st.integers(1_000, 10**7))
def test_a_link_carries_no_more_than_its_bandwidth(texts: list[str], bytes_per_s: int) -> None:
    net = network(Link(Latency.constant(0), bytes_per_s=bytes_per_s))
    last = [send(net, Ping(text)) for text in texts][-1][0]
    wanted = sum(encoded_size(Ping(text)) * MILLION // bytes_per_s for text in texts)
    assert last == wanted


def test_a_loss_of_everything_loses_everything() -> None:
    net = network(Link(loss_ppm=MILLION))
    assert not any(send(net) for _ in range(50))
    assert net.statistics.lost == 50


def test_weather_adds_to_the_links_that_it_touches() -> None:
    net = network(Link(Latency.constant(5)))
    net.add(Weather(side=frozenset({"b"}), duplicate_ppm=MILLION, reorder_ppm=MILLION, extra_us=10))
    assert len(send(net)) == 2
    assert net.arrivals(net.path("c", "d"), "c", "d", Ping(), 0) == [5]
    assert (net.statistics.duplicated, net.statistics.held_back) == (1, 1)


def test_a_cut_counts_what_it_stops() -> None:
    net = network(Link())
    net.add(Cut(frozenset({"a"})))
    assert send(net) == []
    assert net.statistics.cut == 1
    net.heal()
    assert len(send(net)) == 1


def test_weather_delays_what_a_transport_keeps_whole() -> None:
    net = network(Link(Latency.constant(5)))
    net.add(Weather(extra_us=1_000))
    delays = {net.delay_us("a", "b") for _ in range(50)}
    assert min(delays) >= 5 and max(delays) > 100
