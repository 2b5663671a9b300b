"""Which broker holds the backend subscription of a group of results, as one broker sees it.

The pipeline makes results for what some broker holds. A group is counted once, however many members it has, at however
many brokers: its cell names one broker, the **holder**, which holds the backend subscription as it does for a session
(``core.channels.machine``; the group's name stands for the session). Brokers with members find the group's results in
the files of whichever broker they were made for, so that the holder need not have a member, nor be alive: its cell of
the backend subscription is what counts.

    nobody ──Hold──► asked ──Held──► held ──the group's cell names us──► holder ──it names another──► nobody (LetGo)

Rules. A broker is named in the group's cell only after its own cell is stored. It lets go only after the group's cell
names another, or is gone; and then it looks at the cell for itself before it deletes anything, as the home of a session
does. When the holder has no member that takes results, the first of the brokers that have (in the order of their
incarnations) takes its place; so a broker that never comes back holds nothing for ever. Whoever sees the holder change,
or the group end, tells the one that was (``LookAgain``): a hint, which the hourly scan of that broker does without.

The values are as the holder understands them: after a channel was altered it says so in the cell, and all brokers
follow. Nobody else does, so that brokers which have heard of the change and others do not contradict each other.

Invariants: the draft of a cell names this broker only while ``Held`` counts; between ``Hold`` and ``LetGo`` there is no
other ``Hold``.
"""

from __future__ import annotations

from tocsin.core.channels.channel_filter import Bound
from tocsin.core.machine import Effect
from tocsin.core.shared.signals import Held, Hold, LetGo, LookAgain
from tocsin.core.shared.stored_group import ResultsSource, StoredGroup, broker_of


class Holding:
    """Has one broker hold a group's backend subscription while it is to be the holder."""

    def __init__(self, incarnation: str, *, of_results: bool) -> None:
        self._broker = broker_of(incarnation)
        self._of_results = of_results
        self._asked = False  # between ``Hold`` and ``LetGo``
        self._held: Bound | None = None  # stored under this broker's name
        self._holder = ""  # as the cell had it last

    def waits(self, group: StoredGroup | None) -> bool:
        """Whether the group cannot be made yet."""
        return self._of_results and group is None and self._held is None

    def due(self, group: StoredGroup) -> bool:
        """Whether the cell has to say something else."""
        return self.source(group) != group.source

    def source(self, group: StoredGroup | None) -> ResultsSource | None:
        """What the cell is to say."""
        if self._held is not None and self._is_ours(group):
            return ResultsSource(self._held.channel, self._held.values, self._broker)
        return None if group is None else group.source

    def ask(self, group: StoredGroup | None) -> list[Effect]:
        """There are members here: hold what this broker is to hold."""
        if not self._of_results or self._asked or not self._is_ours(group):
            return []
        self._asked = True
        return [Hold()]

    def held(self, event: Held) -> None:
        if self._asked:
            self._held = event.bound

    def failed(self) -> list[Effect]:
        """It cannot be held now."""
        return [] if self._held is not None else self.drop()

    def learn(self, group: StoredGroup | None) -> list[Effect]:
        """The cell is another."""
        effects: list[Effect] = []
        before, self._holder = (
            self._holder,
            "" if group is None or group.source is None else group.source.holder,
        )
        if before not in ("", self._broker, self._holder):
            effects.append(LookAgain(broker=before))
        return effects if self._is_ours(group) else [*effects, *self.drop()]

    def drop(self) -> list[Effect]:
        """This broker is not to hold it for this group, or has nothing of the group any more."""
        if not self._asked:
            return []
        self._asked, self._held = False, None
        return [LetGo()]

    def _is_ours(self, group: StoredGroup | None) -> bool:
        """Whether this broker, which has members, is the holder, or is to be."""
        if group is None or group.source is None or group.source.holder == self._broker:
            return True
        taking = [broker_of(incarnation) for incarnation in group.incarnations()]
        return group.source.holder not in taking and taking[:1] == [self._broker]
