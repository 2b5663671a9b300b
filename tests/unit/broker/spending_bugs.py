"""Bugs that are planted in the shipped classes, one bound less at a time: what random spenders have to find."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from tocsin.broker.connection.writer import ClientWriter
from tocsin.broker.retained.replay import Pages, Replay, _Cursor
from tocsin.core.budgets.budget import Account, Kind
from tocsin.core.coordination.state.publishers import PublisherDirectory
from tocsin.core.delivery.grant import frame_of
from tocsin.core.retained.topics import Room

Bug = Callable[[pytest.MonkeyPatch], None]


def uncharged(kind: Kind, patch: pytest.MonkeyPatch) -> None:
    """Bytes of one kind are counted nowhere: every account says that there are none."""
    take, charge, give = Account.take, Account.charge, Account.give
    spends = {"take": take, "charge": charge}

    def spend(name: str, self: Account, what: Kind, size: int) -> object:
        return None if what is kind else spends[name](self, what, size)

    def give_back(self: Account, what: Kind, size: int) -> None:
        if what is not kind:
            give(self, what, size)

    for name in spends:
        patch.setattr(Account, name, lambda self, what, size, name=name: spend(name, self, what, size))
    patch.setattr(Account, "give", give_back)


def answers_are_not_bounded(patch: pytest.MonkeyPatch) -> None:
    """A client is answered as fast as it asks, whether it reads or not."""

    def answer(self: ClientWriter, data: bytes) -> bool:
        if self._transport is not None:
            self._transport.write(data)
        return True

    patch.setattr(ClientWriter, "answer", answer)


def descriptions_are_not_bounded(patch: pytest.MonkeyPatch) -> None:
    """The coordinator has room for any stream."""
    patch.setattr(PublisherDirectory, "_no_room", lambda *_: None)


def retained_bytes_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """There is always room for a retained message."""
    patch.setattr(Room, "refusal", lambda *_, **__: None)
    patch.setattr(Room, "fits", lambda *_: True)


def each_subscribe_has_a_copy(patch: pytest.MonkeyPatch) -> None:
    """Every SUBSCRIBE has its retained messages made into packets at once, which wait for the client."""
    add = Replay.add

    def copied(self: Replay, name: str, pages: Pages) -> None:
        version = self._reader.version
        frames = [frame_of(kept.publication, version, granted, 1) for kept, granted in pages(None) if granted]
        self._early[f"{name} {len(self)} {id(frames)}"] = _Cursor(
            partial(lambda kept, after: iter(()), frames)
        )
        add(self, name, pages)

    patch.setattr(Replay, "add", copied)


BUGS: Final[dict[str, Bug]] = {
    **{f"{kind.name.lower()}_is_never_charged": partial(uncharged, kind) for kind in Kind},
    **{
        bug.__name__: bug
        for bug in (
            answers_are_not_bounded,
            descriptions_are_not_bounded,
            retained_bytes_are_not_counted,
            each_subscribe_has_a_copy,
        )
    },
}
