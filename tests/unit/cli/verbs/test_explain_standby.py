"""``tocsin explain standby``: who would take a place, who did, and why nobody might."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from tocsin.cli.verbs.explain_standby import Row, as_json, look_up, show, why_not
from tocsin.config import Broker, Settings, load
from tocsin.coordinator.standbys import EXPLANATION, LAST, NEXT, Replacement, Shown
from tocsin.coordinator.status import Lacking, Recruited, Status
from tocsin.errors import OperatorError
from tocsin.ports import TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

GOOD = Shown("spare-z", True, True, 0.75, {"power": (0.5, 0.5), "delay": (1.0, 0.5)}, {}, 1_500, 80_000, ())
SILENT = Shown("spare-a", False, False, None, {}, {}, None, None, ("no answer within 2 s",))
MADE = Replacement("north-1", "north", 1_000.0, ("north-2",), (GOOD, SILENT))
NOBODY = Replacement("north-1", "north", 1_000.0, (), ())


def printed(row: Row) -> str:
    out = Console(file=io.StringIO(), width=160, record=True)
    show(out, row, 1_060.0)
    return out.export_text()


def test_candidates_are_shown_in_order_with_their_terms_and_what_was_measured() -> None:
    said = printed(Row("north-1", MADE, None))
    assert "north-1 would be replaced by spare-z (0:01:00 ago)" in said
    best, worst = (line for line in said.splitlines() if "same" in line or "other" in line)
    assert "0.750" in best and "0.500 × 0.50" in best and "1.5 ms" in best and "80.0 Mbit/s" in best
    assert worst.count("unknown") == 3 and "other" in worst
    assert "the mean of those to north-2" in said
    assert "unknown: spare-a, does not answer" in said and "no answer within 2 s" in said


MOBILE = msgspec.structs.replace(
    GOOD, configuration="mobile-backup", changed={"bandwidth_weight": (1.0, 60.0), "battery_need": (1.0, 8.0)}
)


def test_the_configuration_is_named_with_what_it_changed() -> None:
    made = msgspec.structs.replace(MADE, candidates=(MOBILE, SILENT))
    said = printed(Row("north-1", made, None))
    line = "configuration mobile-backup: bandwidth_weight 60 (static: 1), battery_need 8 (static: 1)"
    assert line in said.splitlines()
    best, silent = as_json(Row("north-1", made, None), 0.0)["next"]["candidates"]
    assert best["configuration"] == "mobile-backup"
    assert best["changed"]["battery_need"] == {"static": 1.0, "value": 8.0}
    assert (silent["configuration"], silent["changed"]) == (None, {})


def test_different_configurations_are_told_apart() -> None:
    static = msgspec.structs.replace(SILENT, configuration="static")
    made = msgspec.structs.replace(MADE, candidates=(MOBILE, static))
    said = printed(Row("north-1", made, None))
    assert "configuration static: changes nothing; of spare-a" in said
    assert "(static: 1); of spare-z" in said and "scores do not compare" in said


def test_a_promotion_and_a_used_up_pool_are_told() -> None:
    said = printed(Row("north-1", NOBODY, MADE))
    assert "would be replaced by nobody: no standby is free" in said
    assert "north-1 was replaced by spare-z" in said


def test_programs_are_told_the_same() -> None:
    said = as_json(Row("north-1", MADE, None), 1_060.0)
    assert said["last"] is None and (said["next"]["chosen"], said["next"]["age_s"]) == ("spare-z", 60.0)
    best, silent = said["next"]["candidates"]
    assert best["terms"]["power"] == {"value": 0.5, "weight": 0.5}
    assert (best["delay_ms"], best["bandwidth_mbit"]) == (1.5, 80.0)
    assert (silent["score"], silent["answered"], silent["delay_ms"]) == (None, False, None)
    assert as_json(Row("north-1", NOBODY, None), 0.0)["next"]["chosen"] is None


async def test_all_that_is_written_down_is_found_by_broker() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    await table.put(f"{NEXT}north-1", EXPLANATION.write(MADE))
    await table.put(f"{LAST}north-2", EXPLANATION.write(MADE))
    assert await look_up(table) == [Row("north-1", MADE, None), Row("north-2", None, MADE)]
    await store.close()


def test_it_is_said_why_nothing_is_known() -> None:
    settings = Settings(brokers=(Broker(id="a", cluster="n"), Broker(id="s", cluster="n", role="standby")))
    assert "no coordinator leads" in why_not(settings, "a", leads=False)
    assert "s is a standby" in why_not(settings, "s", leads=True)
    assert "a few seconds" in why_not(settings, None, leads=True)
    assert "has no standbys" in why_not(load().settings, None, leads=True)
    with pytest.raises(OperatorError, match="no broker 'x'"):
        why_not(settings, "x", leads=True)


async def test_recruits_and_those_who_cannot_be_are_told_as_the_leader_says() -> None:
    leader = Status(
        "coordinator-1",
        "leader",
        *(3, 9, 6, 0, 5, 9, "host-a", 17),
        recruits=(
            Recruited("north-3", "north", stands_by=False, clients=12, place="north-1"),
            Recruited("north-4", "north", stands_by=True),
        ),
        lacking=(Lacking("south", "south-1", 0, 1, {"south-2": "an operator has it drained"}),),
    )
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    await table.put(f"{NEXT}north-3", EXPLANATION.write(MADE))
    rows = {each.broker: each for each in await look_up(table, [leader])}
    await store.close()
    assert list(rows) == ["north-3", "north-4", "south-2"]
    assert rows["north-3"].next == MADE and "12 clients have to leave it" in printed(rows["north-3"])
    assert "north-4 is recruited, and stands by" in printed(rows["north-4"])
    assert "south-2 cannot be recruited: an operator has it drained (0 of 1" in printed(rows["south-2"])
    said = [as_json(each, 0.0)["recruiting"]["state"] for each in rows.values()]
    assert said == ["emptied", "stands by", "cannot be recruited"]
