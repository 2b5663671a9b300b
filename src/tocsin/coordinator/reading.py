"""The state of a network as its command log says, for somebody who only looks: the newest snapshot, and what follows.

A coordinator does the same in slices, and goes on (``core.coordination.coordinator``). This reads once, and costs what
that costs: seconds for a hundred thousand streams.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.leader.snapshot_writer import KEY, Manifest, decode_manifest
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.snapshot import restore
from tocsin.core.coordination.state.state import State
from tocsin.errors import OperatorError, TocsinError
from tocsin.ports import Log, Store
from tocsin.wire.internal.commands import decode_batch

TRIES: Final = 3  # a newer snapshot may take the place of the one that is read


async def read_state(store: Store, names: StoreNames) -> State:
    """The network's state now. ``OperatorError`` if it cannot be read."""
    table = await store.table(names.table)
    commands, snapshots = await store.log(names.commands), await store.log(names.snapshots)
    problem = "a newer snapshot took the place of the one that was read"
    for _ in range(TRIES):
        cell = await table.get(KEY)
        try:
            manifest = None if cell is None else decode_manifest(cell.value)
            state = State() if manifest is None else await _restored(snapshots, manifest)
            if state is not None and await _follow(commands, names, state, manifest):
                return state
        except TocsinError as error:
            problem = str(error)
    raise OperatorError(
        f"the network's state cannot be read: {problem}",
        "Look at `tocsin coordinator status`, and try again",
    )


async def _restored(snapshots: Log, manifest: Manifest) -> State | None:
    """The state of a snapshot; None if its pieces are gone."""
    pieces: list[bytes] = []
    start = manifest.first
    while len(pieces) < manifest.pieces:
        page = await snapshots.read(manifest.subject, start)
        pieces += [entry.payload for entry in page.entries]
        if page.next > page.last and len(pieces) < manifest.pieces:
            return None
        start = page.next
    return restore(pieces[: manifest.pieces])


async def _follow(commands: Log, names: StoreNames, state: State, manifest: Manifest | None) -> bool:
    """Apply what the log has after a snapshot; False if some of that is gone."""
    position = 0 if manifest is None else manifest.position
    start = position + 1
    while True:
        page = await commands.read(names.commands_subject, start)
        for entry in page.entries:
            batch = decode_batch(entry.payload)
            if batch.previous != position:
                return False
            state.follow(batch)
            position = entry.position
        if page.next > page.last:
            return True
        start = page.next
