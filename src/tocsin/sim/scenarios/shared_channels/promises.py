"""The promises of groups that share results: those of groups, and that somebody holds what they share."""

from __future__ import annotations

from tocsin.core.shared.stored_group import GROUP_KEYS, decode_group
from tocsin.model.network import Address
from tocsin.model.results import decode_notice, decode_subscription, result_position
from tocsin.ports import Change, Entry
from tocsin.sim.process.messages import Written
from tocsin.sim.process.packets import Key
from tocsin.sim.process.stage import CHANNELS, GROUPS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.channels.dataset import FILES, Row, meant_by, number_of, part_of
from tocsin.sim.scenarios.channels.promises import Tidy
from tocsin.sim.scenarios.groups.promises import promises_of_groups
from tocsin.sim.world import World


class Results(Written):
    """Notes the results that groups share, when a notice tells of them: to a group they are messages at QoS 1."""

    name = "a tick has one notice"

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(lambda publication: ("", 0))
        self._patterns = {meant_by(each): each for each in (name.split("/", 2)[2] for name in names)}  # by k
        self._rows: dict[int, dict[int, Row]] = {}  # tick → ordinal → result

    def attach(self, world: World) -> None:
        world.observers.on_entry(FILES.name, self._on_file)
        world.observers.on_entry(CHANNELS.notices.name, self._on_notice)

    def end(self, world: World) -> int:
        return result_position(world.store.logs[CHANNELS.notices.name].last_position + 1, 0) - 1

    def _on_file(self, entry: Entry) -> None:
        part = part_of(entry)
        for row in part.rows:
            self._rows.setdefault(part.tick, {})[row.ordinal] = row

    def _on_notice(self, entry: Entry) -> None:
        tick = decode_notice(entry.payload).tick
        for ordinal, row in sorted(self._rows[tick].items()):
            if row.k in self._patterns:
                key = key_of(number_of(tick, ordinal))
                if key in self.copies:
                    self.broken(f"there are two notices of tick {tick}")
                self.copies[key] = 1
                self.first[key] = result_position(entry.position, ordinal)
                self.topics[key] = self._patterns[row.k]
                self.entries.append((self.first[key], key, self.topics[key], 1))


def key_of(number: int) -> Key:
    """A result as a client names it: by the content type, in whose place messages have their publisher."""
    return "application/json", number


class GroupsStayHeld(Invariant):
    """Some broker holds what each group shares, from when the group is made until it is gone."""

    name = "what a group shares is held"

    def __init__(self) -> None:
        self._cells: dict[str, str] = {}  # key of a backend subscription's cell → k
        self._shared: dict[str, tuple[str, str]] = {}  # key of a group's cell → its name, and k

    def attach(self, world: World) -> None:
        world.observers.on_change(CHANNELS.subscriptions.name, self._on_cell)
        world.observers.on_change(GROUPS.name, self._on_group)

    def _on_cell(self, change: Change) -> None:
        if change.kind == "put":
            self._cells[change.key] = decode_subscription(change.value).k
        elif change.kind == "delete":
            self._cells.pop(change.key, None)
            self._look()

    def _on_group(self, change: Change) -> None:
        if not change.key.startswith(GROUP_KEYS):
            return
        self._shared.pop(change.key, None)
        if change.kind == "put":
            group = decode_group(change.value)
            if group.source is None:
                self.broken(f"{group.name} does not say what it shares")
            self._shared[change.key] = (group.name, group.source.bound.k)
            self._look()

    def _look(self) -> None:
        held = set(self._cells.values())
        for name, k in self._shared.values():
            if k not in held:
                self.broken(f"nobody holds what {name} shares")


def promises(lasting: tuple[str, ...], fleeting: str, visitors: tuple[Address, ...]) -> list[Invariant]:
    results = Results((*lasting, fleeting))
    return [*promises_of_groups(lasting, fleeting, visitors, results), GroupsStayHeld(), Tidy()]
