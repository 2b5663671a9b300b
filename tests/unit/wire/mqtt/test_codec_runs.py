"""Plain publishes that follow each other come as runs, which are the same packets."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import Decoder, PublishRun, encode
from tocsin.wire.mqtt.connect import V5, V311, Version


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_run_holds_the_packets_that_would_have_come_one_by_one(data: st.DataObject) -> None:
    version: Version = data.draw(st.sampled_from((V5, V311)))
    topics = st.sampled_from(("runs/a", "runs/a", "runs/a", "runs/b", "runs/é"))
    sizes = st.sampled_from((0, 1, 100, 117, 118, 119, 120, 121, 200, 17_000))
    flags = st.sampled_from((False, False, False, True))
    few = data.draw(st.lists(sizes, min_size=1, max_size=3))  # mostly of the same length, as in life
    messages = [
        (topic, _payload(topic, size, version), retain)
        for topic, size, retain in data.draw(
            st.lists(st.tuples(topics, st.sampled_from(few), flags), max_size=12)
        )
    ]
    frames = [
        encode(PublishPacket(topic, payload, retain=retain), version) for topic, payload, retain in messages
    ]
    stream = b"".join(frames)
    between = [0, *itertools.accumulate(map(len, frames))]
    anywhere = st.integers(0, len(stream))
    cuts = sorted(
        data.draw(
            st.just([])
            | st.lists(anywhere, max_size=3)
            | st.lists(st.sampled_from(between) | st.sampled_from(between) | anywhere, max_size=6)
        )
    )
    decoder = Decoder(1 << 20, role="client", version=version)
    for topic in ("runs/a", "runs/b", "runs/é"):
        decoder.feed(encode(PublishPacket(topic, b""), version))  # from now on it is known
    found: list[tuple[str, bytes, bool]] = []
    counts: list[int] = []
    for start, end in itertools.pairwise([0, *cuts, len(stream)]):
        for item in decoder.feed_runs(stream[start:end]):
            if isinstance(item, PublishRun):
                run = item.packets()
                assert item.count == len(run) and item.version == version
                assert b"".join(encode(each, version) for each in run) == item.frames
            else:
                assert isinstance(item, PublishPacket)
                run = [item]
            counts.append(len(run))
            for packet in run:
                found.append((packet.topic, packet.payload, packet.retain))
    assert found == messages
    if not cuts:
        assert counts == _run_lengths(messages)


def _payload(topic: str, size: int, version: Version) -> bytes:
    """One that looks like packets on the same topic itself."""
    # Each of the three is longer than a third of it.
    return (encode(PublishPacket(topic, b"p" * (size // 3)), version) * 3)[:size]


def _run_lengths(messages: list[tuple[str, bytes, bool]]) -> list[int]:
    """How many of them follow each other that a run can hold: of one topic, not retained, and not too long."""
    lengths: list[int] = []
    before = ""
    for topic, payload, retain in messages:
        plain = not retain and len(payload) < 16_000
        if plain and topic == before:
            lengths[-1] += 1
        else:
            lengths.append(1)
        before = topic if plain else ""
    return lengths


def test_after_an_error_nothing_comes_not_even_more_of_the_same() -> None:
    decoder = Decoder(1 << 20, role="client", version=V5)
    chunk = encode(PublishPacket("runs/a", b"same"), V5) * 3
    decoder.feed(chunk)
    runs = [PublishRun("runs/a", chunk, 3, V5)]
    assert decoder.feed_runs(chunk) == decoder.feed_runs(chunk) == runs
    (error,) = decoder.feed_runs(b"\x00\x00")
    assert isinstance(error, WireError)
    assert decoder.feed_runs(chunk) == []


def test_the_rest_of_a_packet_does_not_extend_a_run() -> None:
    decoder = Decoder(1 << 20, role="client", version=V5)
    frame = encode(PublishPacket("runs/a", b"same"), V5)
    holder = encode(PublishPacket("runs/b", frame), V5)  # its payload looks like what came before
    decoder.feed(frame + holder)  # both topics are known
    assert decoder.feed_runs(frame) == [PublishRun("runs/a", frame, 1, V5)]
    assert decoder.feed_runs(holder[: -len(frame)]) == []
    assert decoder.feed_runs(frame) == [PublishRun("runs/b", holder, 1, V5)]


def test_no_bytes_are_no_run() -> None:
    decoder = Decoder(1 << 20, role="client", version=V5)
    assert decoder.feed_runs(b"") == []
    decoder.feed(encode(PublishPacket("runs/a", b"same"), V5))
    decoder.feed_runs(encode(PublishPacket("runs/a", b"same"), V5))
    assert decoder.feed_runs(b"") == []


def test_what_only_begins_with_more_of_the_same_is_read_anew() -> None:
    decoder = Decoder(1 << 20, role="client", version=V5)
    one, other = (encode(PublishPacket(topic, b"same"), V5) for topic in ("runs/a", "runs/b"))
    decoder.feed(one + other)  # both topics are known
    assert decoder.feed_runs(one) == [PublishRun("runs/a", one, 1, V5)]
    runs = [PublishRun("runs/a", one, 1, V5), PublishRun("runs/b", other, 1, V5)]
    assert decoder.feed_runs(one + other) == runs


@settings(deadline=None)
@given(st.lists(st.sampled_from((0, 1, 120, 130, 17_000)), min_size=2, max_size=30), st.data())
def test_a_run_can_be_parted_anywhere(sizes: list[int], data: st.DataObject) -> None:
    frames = [encode(PublishPacket("runs/a", b"p" * size), V5) for size in sizes if size < 16_000]
    if len(frames) < 2:
        return
    run = PublishRun("runs/a", b"".join(frames), len(frames), V5)
    count = data.draw(st.integers(1, len(frames) - 1))
    first, rest = run.parted(count)
    assert (first.count, rest.count) == (count, len(frames) - count)
    assert (first.frames, rest.frames) == (b"".join(frames[:count]), b"".join(frames[count:]))
