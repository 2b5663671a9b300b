"""``tocsin explain``: candidates, terms and choice, and why there may be none."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from tocsin.cli.main import main
from tocsin.cli.verbs.explain import Found, as_json, look_up, print_explanation, why_not
from tocsin.config import load
from tocsin.coordinator.planning import PREFIX, Explanation, Shown
from tocsin.coordinator.status import PREFIX as STATUS
from tocsin.coordinator.status import Status
from tocsin.errors import OperatorError
from tocsin.ports import TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

LEADER = Status("coordinator-1", "leader", 1, 1, 6, 0, 0, 0, "here", 1)
SETTINGS = load().settings


def shown(name: str, score: float, *, chosen: bool = False, **more: object) -> Shown:
    facts: dict[str, object] = {
        "terms": {
            "similarity": (0.75, 0.6),
            "nearness": (1.0, 0.1),
            "room": (0.5, 0.1),
            "resources": (0.25, 0.2),
        },
        "added": 1_250,
        "obstacle": None,
        "unanswered": {},
        "machine": {"processor": (0.9, 0.5), "power": (0.1, 0.5)},
    }
    return msgspec.convert({"name": name, "score": score, "chosen": chosen, **facts, **more}, Shown)


EXPLANATION = Explanation(
    "north-1",
    1_000.0,
    5_000,
    local=(
        shown("north-2", 0.66),
        shown("north-3", 0.61, chosen=True, obstacle="would have to carry 9, can carry less than 5"),
    ),
    remote=(
        shown(
            "south-1",
            0.5,
            chosen=True,
            unanswered={"resources": "no answer"},
            problems=("bandwidth: eth0 does not say its speed",),
        ),
    ),
    shortfalls=("north-1 lacks room",),
)


def printed(
    explanation: Explanation, width: int = 300, *, terminal: bool = False, leader: bool = True
) -> str:
    out = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False
    )
    print_explanation(out, explanation, LEADER if leader else None, 1_075.0)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def line(text: str, begin: str) -> list[str]:
    """The cells of the first line of a table that begins so."""
    (found, *_) = [each for each in text.splitlines() if each.strip().startswith(begin)]
    return [cell.strip() for cell in found.split("  ") if cell.strip()]


def test_every_candidate_has_its_terms_score_cost_and_obstacle() -> None:
    text = printed(EXPLANATION)
    assert "north-1 holds 5,000 subscriptions; planned 0:01:15 ago by search\n" in text
    assert "local backup: north-3" in text and "remote backup: south-1" in text
    assert line(text, "similarity") == ["similarity", "nearness", "room", "resources"]
    weights = ["× 0.60", "× 0.10", "× 0.10", "× 0.20"]
    assert line(text, "candidate") == ["candidate", "score", *weights, "adds", "obstacle"]
    assert line(text, "north-2") == ["north-2", "0.660", "0.750", "1.000", "0.500", "0.250", "1,250"]
    assert line(text, "* north-3")[-1] == "would have to carry 9, can carry less than 5"
    assert line(text, "* south-1")[5] == "unknown"


def test_loads_are_shown_as_data_and_so_is_whether_capacity_decided() -> None:
    rated = msgspec.structs.replace(
        EXPLANATION,
        local=(
            shown("north-3", 0.61, chosen=True, load=1_234_567.0, capacity=4e9),
            shown("north-2", 0.66, load=999.0, capacity=12_300.0, obstacle="would have to carry more"),
        ),
        load_bytes_per_s=56_000.0,
        unit="bytes/s",
        without_room={"local": "north-2"},
    )
    text = printed(rated)
    assert "north-1 holds 5,000 subscriptions, 56 kB/s in all; planned" in text
    assert line(text, "* north-3")[-2:] == ["1.23 MB/s", "4 GB/s"]
    assert line(text, "north-2")[-3:-1] == ["999 B/s", "12.3 kB/s"]
    assert "capacity decided: north-2 would add fewer subscriptions, and has no room" in text
    assert text.count("capacity decided") == 1
    said = as_json(rated, LEADER, 1_075.0)
    assert (said["load_bytes_per_s"], said["unit"]) == (56_000.0, "bytes/s")
    assert (said["local"]["without_room"], said["remote"]["without_room"]) == ("north-2", None)
    assert said["local"]["candidates"][0]["load"] == 1_234_567.0
    assert said["local"]["candidates"][0]["capacity"] == 4e9


def test_without_an_obstacle_a_table_fits_eighty_columns() -> None:
    lines = printed(msgspec.structs.replace(EXPLANATION, local=()), 80, terminal=True).splitlines()
    assert any("similarity" in each and "resources" in each for each in lines), "no blocks of lines"


def test_a_machines_score_is_itemised_and_unknown_criteria_are_named() -> None:
    text = printed(EXPLANATION)
    assert line(text, "resources of") == ["resources of", "processor", "power"]
    assert "north-2" in text and "0.900 × 0.50" in text and "0.100 × 0.50" in text
    assert "unknown: south-1, bandwidth: eth0 does not say its speed" in text
    assert "missing: north-1 lacks room" in text


def test_a_choice_that_is_not_the_best_by_itself_is_accounted_for() -> None:
    text = printed(EXPLANATION)
    assert "north-2 scores more than north-3: a plan is made for all brokers at once" in text
    assert "south-1 scores more" not in text


def test_outside_a_terminal_there_are_no_lines_and_on_one_there_are() -> None:
    assert "│" not in printed(EXPLANATION)
    assert "│" in printed(EXPLANATION, terminal=True)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_cut_off_on_a_narrow_terminal(width: int) -> None:
    text = "".join(
        character for character in printed(EXPLANATION, width, terminal=True) if character.isalnum()
    )
    for word in ("similarity", "wouldhavetocarry9", "1250", "0660", "north3", "power"):
        assert word in text


def test_without_a_leader_the_last_plan_is_shown_as_such() -> None:
    assert "and nobody leads just now" in printed(EXPLANATION, leader=False)


def test_nobody_who_could_be_it_is_said_in_words() -> None:
    alone = Explanation("north-1", 0.0, 0, (), (), ("north-1 has no local backup: nobody",))
    text = printed(alone)
    assert "local backup: nobody" in text and "remote backup: nobody" in text
    assert "missing: north-1 has no local backup" in text


def test_a_program_gets_the_same_facts() -> None:
    said = msgspec.json.decode(msgspec.json.encode(as_json(EXPLANATION, LEADER, 1_075.0)))
    assert said["local"]["chosen"] == "north-3" and said["remote"]["chosen"] == "south-1"
    assert (said["age_s"], said["leader"], said["subscriptions"]) == (75.0, "coordinator-1", 5_000)
    first = said["local"]["candidates"][0]
    assert first["terms"]["similarity"] == {"value": 0.75, "weight": 0.6}
    assert first["machine"]["power"] == {"value": 0.1, "weight": 0.5}
    assert said["remote"]["candidates"][0]["problems"] == ["bandwidth: eth0 does not say its speed"]
    assert said["shortfalls"] == ["north-1 lacks room"]


def test_an_unknown_broker_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(OperatorError) as caught:
        why_not(Found(None, ("west-1",), (LEADER,)), SETTINGS, "east-1")
    assert "there is no broker 'east-1'" in str(caught.value)
    assert "north-1, north-2" in str(caught.value) and "west-1" in str(caught.value)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Found(None, (), ()), "no coordinator leads"),
        (Found(None, ("north-2",), (LEADER,)), "was not there when the last was made"),
        (Found(None, (), (msgspec.structs.replace(LEADER, brokers=1),)), "there are 1 brokers"),
        (Found(None, (), (LEADER,)), "coordinator-1 makes one a few seconds after"),
    ],
)
def test_why_there_is_no_plan_is_said(found: Found, words: str) -> None:
    assert words in why_not(found, SETTINGS, "north-1")


async def test_it_is_read_from_the_table_of_the_coordinators() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    assert await look_up(table, "north-1") == Found(None, (), ())
    await table.put(f"{PREFIX}north-1", msgspec.json.encode(EXPLANATION))
    await table.put(f"{STATUS}{LEADER.id}", msgspec.json.encode(LEADER))
    assert await look_up(table, "north-1") == Found(EXPLANATION, ("north-1",), (LEADER,))
    assert (await look_up(table, "no such > key")).explanation is None
    await store.close()


def test_without_a_verb_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain"])
    said = capsys.readouterr()
    assert "backup" in said.out + said.err
