"""Where marks are: inside the stream's own subjects wherever that is possible."""

from __future__ import annotations

from tocsin.core.coordination.names import StoreNames
from tocsin.model.channel_names import ChannelNames
from tocsin.model.subjects import messages_log
from tocsin.store import rules
from tocsin.store.jetstream import log as jetstream_log
from tocsin.store.jetstream.stream import own_marks


def test_marks_are_below_a_wildcard_of_the_streams_own() -> None:
    assert own_marks(("t.c", "t.n.>")) == "t.n.$mark"
    assert own_marks(("t.m.>", "t.c.>")) == "t.m.$mark"
    assert own_marks(("t.notices",)) == "t.notices.$mark"


def test_no_two_logs_of_a_network_have_subjects_in_common() -> None:
    """A server refuses a stream that overlaps with another: then nothing starts."""
    places, channels = StoreNames("t"), ChannelNames("t")
    specs = (places.commands, places.snapshots, messages_log("t", 60, 1), channels.notices, channels.feeds)
    subjects = [
        (spec.name, each) for spec in specs for each in jetstream_log.stream_config(spec, "x", 1)["subjects"]
    ]
    for name, one in subjects:
        for other_name, other in subjects:
            if name != other_name:
                assert not rules.covers(one, other.replace(">", "x").replace("*", "x")), (one, other)
