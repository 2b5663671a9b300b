"""Growth: how many members each tier should have, and which of them may go.

    the load is heading above what members can carry ──► more are **wanted**: whoever starts processes starts them
    it is low for long ──► the emptiest member is **leaving**: it gives up its slots, by planned moves
        ──► nothing goes over it any more ──► it is **spare**: whoever stops processes stops it ──► it is gone

How many that are is ``core.tiers.elasticity``'s to say. ``tocsin up`` starts and stops processes itself, elsewhere
``routing.command`` does (``coordinator.growing``). If the load comes back before a member that is leaving has gone, it
stays. A leader that was just elected knows of no member that is leaving: it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from tocsin.core.coordination.state.state import State
from tocsin.core.tiers.elasticity import Elasticity, GrowthRules
from tocsin.core.tiers.loads import TierLoads
from tocsin.core.tiers.measuring import WINDOW_US


class Wanted(msgspec.Struct, frozen=True):
    """What a tier should be."""

    members: int  # so many …
    there: int = 0  # … of which there are so many now, without those that are leaving
    spare: tuple[str, ...] = ()  # members that may be stopped
    use: float | None = None  # the forecast of the load, against what members can carry; None: not known


class _Tier:
    def __init__(self, rules: GrowthRules) -> None:
        self.elasticity = Elasticity(rules)
        self.wanted = self.there = 0
        self.leaving: dict[str, int | None] = {}  # member → when it had no slots any more


class Growth:
    """Decides for one leader. ``loads`` are those of a tier; ``emptied`` names the brokers that an operator empties."""

    def __init__(
        self,
        state: State,
        loads: Callable[[str], TierLoads | None],
        emptied: Callable[[], Collection[str]],
        rules: GrowthRules,
    ) -> None:
        self._state = state
        self._loads = loads
        self._emptied = emptied
        self._rules = rules
        self._tiers: dict[str, _Tier] = {}

    @property
    def leaving(self) -> frozenset[str]:
        """The members that are to carry nothing, as there is no need of them."""
        return frozenset(each for tier in self._tiers.values() for each in tier.leaving)

    def wanted(self) -> Mapping[str, Wanted]:
        """What tiers should be, by name; empty if they are as large as they are."""
        if not self._rules.least:
            return {}
        return {
            name: Wanted(tier.wanted, tier.there, self._spare(name, tier), tier.elasticity.use)
            for name, tier in sorted(self._tiers.items())
        }

    def look(self, now_us: int) -> None:
        """Look at all tiers; what follows is in ``leaving`` and ``wanted``."""
        if not self._rules.least:
            return
        tables = self._state.tiers.tables
        for name in [each for each in self._tiers if each not in tables]:
            del self._tiers[name]
        for name, table in tables.items():
            loads = self._loads(name)
            if loads is None:
                continue
            tier = self._tiers.setdefault(name, _Tier(self._rules))
            carried = table.carried()
            tier.leaving = {
                each: (since_us or now_us) if not carried[each] else None
                for each, since_us in tier.leaving.items()
                if each in table.members
            }
            emptied = self._emptied()
            staying = [each for each in table.members if each not in tier.leaving and each not in emptied]
            tier.there = len(staying)
            wanted = tier.elasticity.look(loads.messages, loads.speed, len(staying), now_us)
            if wanted > len(staying) and tier.leaving:
                for each in list(tier.leaving)[: wanted - len(staying)]:
                    del tier.leaving[each]  # it is needed after all
                tier.wanted = max(wanted, len(staying))
            elif wanted < len(staying):
                tier.leaving[min(staying, key=lambda each: (loads.carried_by(each), each))] = None
                tier.wanted = wanted
            else:
                tier.wanted = max(wanted, tier.wanted if not tier.leaving else wanted)

    def _spare(self, name: str, tier: _Tier) -> tuple[str, ...]:
        loads = self._loads(name)
        return tuple(
            each
            for each, since_us in sorted(tier.leaving.items())
            if since_us is not None and loads is not None and loads.told_nothing(each, since_us + WINDOW_US)
        )
