"""The PROXY header: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import FormatNewer, Malformed, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.wire.proxy_header import BODY_MAX_BYTES, HEAD_BYTES, PassedOn, read_header, write_header

clients = st.builds(PassedOn, st.ip_addresses().map(str), st.integers(0, 65_535), st.booleans())


@given(clients, st.binary(max_size=50))
def test_what_is_written_is_read_however_it_comes(client: PassedOn, rest: bytes) -> None:
    header = write_header(client)
    for length in range(len(header)):
        assert read_header(header[:length]) is None
    assert read_header(header + rest) == (client, len(header))


@given(st.binary(max_size=600))
def test_whatever_comes_costs_no_more_than_a_refusal(data: bytes) -> None:
    try:
        read = read_header(data)
    except UNREADABLE as error:
        assert isinstance(error, TocsinError)
    else:
        assert read is None
        assert len(data) < HEAD_BYTES + BODY_MAX_BYTES


@given(clients, st.data())
def test_changed_bytes_are_read_or_refused(client: PassedOn, data: st.DataObject) -> None:
    header = bytearray(write_header(client))
    header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_header(bytes(header))
    except UNREADABLE:
        return


def test_newer_door_is_refused_in_words() -> None:
    header = bytearray(write_header(PassedOn("192.0.2.1", 1)))
    assert header[-1:] == b"1"
    header[-1:] = b"2"
    with pytest.raises(FormatNewer):
        read_header(bytes(header))


def test_address_that_is_none_is_nobodys() -> None:
    read = read_header(write_header(PassedOn("", 0)))
    assert read is not None
    assert read[0].address == "0.0.0.0"


def test_mqtt_is_no_header() -> None:
    with pytest.raises(Malformed):
        read_header(b"\x10\x0e\x00\x04MQTT")
