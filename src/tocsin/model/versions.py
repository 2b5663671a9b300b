"""The version of everything that is stored or spoken, and the one way of writing and reading it.

A **format** is the layout of one kind of record, cell, message or file. Its name and version are below, in ``KNOWN``;
``docs/reference/store.md`` has the same list. Every value says which version it is of:

    binary   one byte, 1 … 31, in front of the value (MessagePack, or plain text)
    JSON     the field "v", which is the first
    stated   a field of an envelope that is not ours: a property of an MQTT packet, of a Delta table

Stored values of release 0.1.0 say no version, and are read as version 0. MessagePack of ours begins with an array or a
map (from 0x80 on), and text with a character that can be printed (from 0x20 on): neither looks like a version. Bytes
that are somebody else's may begin with anything: theirs is two bytes, 0 and the version.

A value of a newer version is ``FormatNewer``: a reader leaves it where it is, reports it, and does not go on as if it
were not there. ``Malformed`` is a value that no version explains.

The **level** is what the processes of a network agree to speak. Each process says which levels it speaks (``SPEAKS``)
when it joins; the coordinators keep the highest that every one speaks, and tell it to brokers. The network's level is
in the command log (``Elected``, ``Raised``), and never falls: what was written at a level is there to be read.

A broker **fits** if it speaks the network's level, and has a level in common with every member and the leader. The
leader raises the level to the highest that all of them speak, when that has been so for a while (``RAISE_AFTER_US``):
a broker of the old release that is away for a restart is not locked out. Members that say no level are of release
0.1.0. They are in the state of a network that was stopped by force; a process of that release cannot read what ours
say, so they count for nothing, and leave when they are missed.

To change a layout:

- a field that is added at the end with a default needs no new version: older processes pass over it;
- for whatever else, raise ``newest`` of the format and the newest level in ``SPEAKS``. Write the new version only when
  the network's level has reached it, and go on reading the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from tocsin.errors import FormatNewer, Malformed

T = TypeVar("T")
UNREADABLE: Final = (Malformed, FormatNewer)  # what reading raises
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
TEXT_MAX: Final = 16  # characters that say levels
_MARKS: Final = 0x20  # the first byte that is no version
ANY: Final = 1 << 16  # a level that nobody reaches: nobody has said what it speaks
RAISE_AFTER_US: Final = (
    600_000_000  # longer than a restart by hand, or a rolling upgrade's pause between two brokers
)


class Levels(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The levels that a process speaks, from the oldest to the newest."""

    oldest: int = 0
    newest: int = 0

    @property
    def text(self) -> str:
        return f"{self.oldest}-{self.newest}"

    def shares(self, text: str) -> bool:
        """Whether one of these is among the levels that somebody else's text says."""
        oldest, _, newest = text.partition("-")
        if not (oldest.isdecimal() and newest.isdecimal()) or len(text) > TEXT_MAX:
            return False
        return int(oldest) <= self.newest and self.oldest <= int(newest)


LEVEL_0_1_0: Final = Levels()  # what a process of release 0.1.0 speaks, which says nothing
SPEAKS: Levels = Levels(1, 1)  # the levels of this release


def speaks() -> Levels:
    """The levels that this process speaks."""
    return SPEAKS


def common(level: int, spoken: Iterable[Levels]) -> Levels:
    """The levels that all of them speak, from the network's on. None is, if the oldest is above the newest."""
    said = [each for each in spoken if each.newest]
    return Levels(max((level, *(each.oldest for each in said))), min((ANY, *(each.newest for each in said))))


def fits(newcomer: Levels, network: Levels) -> bool:
    """Whether a process that speaks these can join a network whose processes speak those; a process that states none is
    in the log of release 0.1.0, and none joins like that any more.
    """
    return not newcomer.newest or (newcomer.newest >= network.oldest and newcomer.oldest <= network.newest)


class Format:
    """One kind of value, as bytes of any kind."""

    __slots__ = ("mark", "name", "newest", "spoken")

    def __init__(self, name: str, newest: int = 1, *, spoken: bool = False) -> None:
        assert 0 < newest < _MARKS
        self.name = name  # as a person calls it, with its article
        self.spoken = spoken  # between processes that run now: it is never of release 0.1.0
        self.newest = newest  # the version that is written, and the newest that is read
        self.mark = bytes((newest,))
        KNOWN.setdefault(name, self)

    def seal(self, body: bytes) -> bytes:
        """A value with its version."""
        return self.mark + body

    def open(self, data: bytes) -> bytes:
        """The value without its version, or ``FormatNewer``."""
        version = data[0] if data else _MARKS
        if version >= _MARKS:
            if self.spoken:
                raise Malformed(f"not {self.name}: it says no version; stop the process of release 0.1.0")
            return data
        if version > self.newest:
            raise FormatNewer(self.name, version, self.newest)
        return data[1:]


class Foreign(Format):
    """Values that are somebody else's bytes, of any kind."""

    __slots__ = ()

    def __init__(self, name: str, newest: int = 1) -> None:
        super().__init__(name, newest)
        self.mark = bytes((0, newest))

    def open(self, data: bytes) -> bytes:
        if data[:1] != b"\0" or len(data) < 2:
            return data
        if data[1] > self.newest:
            raise FormatNewer(self.name, data[1], self.newest)
        return data[2:]


KNOWN: Final[dict[str, Format]] = {}  # every format there is, by name


class Packed(Format, Generic[T]):
    """Values that are MessagePack behind the version."""

    __slots__ = ("_decode", "_encode")

    def __init__(
        self,
        name: str,
        decoder: msgspec.msgpack.Decoder[T],
        newest: int = 1,
        *,
        spoken: bool = False,
        ordered: bool = False,
    ) -> None:
        """``ordered``: equal values are the same bytes."""
        super().__init__(name, newest, spoken=spoken)
        self._encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(
            order="sorted" if ordered else None
        ).encode
        self._decode: Callable[[Any], T] = decoder.decode

    def write(self, value: object) -> bytes:
        return self.mark + self._encode(value)

    def read(self, data: bytes) -> T:
        """Decode a value. Raises ``FormatNewer``, or ``Malformed`` for anything else."""
        try:
            return self._decode(self.open(data))
        except _UNREADABLE as error:
            raise Malformed(f"not {self.name}: {error}") from None


class Document(Format, Generic[T]):
    """Values that are a JSON object."""

    __slots__ = ("_decode", "_encode")

    def __init__(self, name: str, decoder: msgspec.json.Decoder[T], newest: int = 1) -> None:
        super().__init__(name, newest)
        self.mark = b'{"v":%d' % newest
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
        self._decode: Callable[[Any], T] = decoder.decode

    def seal(self, body: bytes) -> bytes:
        rest = body[1:]
        return self.mark + (b"}" if rest == b"}" else b"," + rest)

    def open(self, data: bytes) -> bytes:
        version = _versions.decode(data).v
        if version > self.newest:
            raise FormatNewer(self.name, version, self.newest)
        return data

    def write(self, value: object) -> bytes:
        return self.seal(self._encode(value))

    def read(self, data: bytes) -> T:
        """As ``Packed.read``."""
        try:
            return self._decode(self.open(data))
        except _UNREADABLE as error:
            raise Malformed(f"not {self.name}: {error}") from None


class Stated(Format):
    """Values in an envelope that is not ours, which has a field for the version."""

    __slots__ = ("text",)

    def __init__(self, name: str, newest: int = 1) -> None:
        super().__init__(name, newest)
        self.text = str(newest)  # what the field says

    def check(self, said: object) -> None:
        """``FormatNewer`` if the field says a newer version, ``Malformed`` if it says none. None: there is no field."""
        if said is None or said == self.text:
            return
        text = str(said)
        if not (text.isascii() and text.isdecimal()) or len(text) > TEXT_MAX:
            raise Malformed(f"{text[:TEXT_MAX]!r} is no version of {self.name}; write {self.text}")
        if int(text) > self.newest:
            raise FormatNewer(self.name, int(text), self.newest)


class _Versioned(msgspec.Struct):
    v: int = 0


_versions: Final = msgspec.json.Decoder(_Versioned)
