"""The settings of backups and of the scores of machines: how they are read, and what is refused."""

from __future__ import annotations

import pytest

from tocsin.config import Criterion, File, Scoring, Settings, from_json, load, to_json
from tocsin.errors import SettingError

TEXT = """
[recovery]
capacity = 5000
similarity_weight = 3
nearness_weight = 0

[scoring]
battery_weight = 0.5
memory_need = 4

[[scoring.criteria]]
name = "link"
command = ["/usr/local/bin/link-quality", "a b"]

[[scoring.criteria]]
name = "power"
command = ["power"]
weight = 2.5
timeout_ms = 200
every_s = 60
"""


def refusal(criteria: object = (), **flags: object) -> SettingError:
    with pytest.raises(SettingError) as caught:
        load(flags={"scoring.criteria": criteria, **{key.replace("__", "."): flags[key] for key in flags}})
    assert caught.value.remedy
    return caught.value


def test_weights_needs_and_criteria_are_read_from_the_file() -> None:
    settings = load(file=File("tocsin.toml", TEXT)).settings
    assert settings.recovery.capacity == 5_000
    assert settings.recovery.weights() == {"similarity": 3.0, "nearness": 0.0, "room": 0.1, "resources": 0.2}
    assert settings.scoring.weights() == {"processor": 1.0, "memory": 1.0, "bandwidth": 1.0, "battery": 0.5}
    assert settings.scoring.needs() == {"processor": 1.0, "memory": 4.0, "bandwidth": 10.0, "battery": 1.0}
    assert settings.scoring.criteria == (
        Criterion(name="link", command=("/usr/local/bin/link-quality", "a b")),
        Criterion(name="power", command=("power",), weight=2.5, timeout_ms=200, every_s=60.0),
    )
    assert from_json(to_json(settings)) == settings


def test_without_settings_there_is_no_bound_and_no_criterion() -> None:
    assert Settings().recovery.capacity == 0
    assert Settings().scoring.criteria == ()


def test_a_capacity_is_stated_in_pairs_or_as_data() -> None:
    data = load(flags={"recovery.capacity_bytes_per_s": 2_000_000}).settings.recovery
    assert (data.capacity, data.capacity_bytes_per_s) == (0, 2_000_000)
    both = refusal(recovery__capacity=5, recovery__capacity_bytes_per_s=7)
    assert both.key == "recovery.capacity_bytes_per_s"
    assert "recovery.capacity is set too (5)" in str(both) and "Set one of them to 0" in str(both)


@pytest.mark.parametrize(
    ("criterion", "key", "problem"),
    [
        ({"command": ["x"]}, "name", "every criterion needs one"),
        ({"name": "a"}, "command", "every criterion needs one"),
        ({"name": "A b", "command": ["x"]}, "name", "must be a name"),
        ({"name": "memory", "command": ["x"]}, "name", "a resource has this name"),
        ({"name": "a", "command": "ping -c1"}, "command", "must be a list"),
        ({"name": "a", "command": []}, "command", "must be a list"),
        ({"name": "a", "command": ["x"] * 65}, "command", "must be a list"),
        ({"name": "a", "command": ["x", 1]}, "command", "must be a list"),
        ({"name": "a", "command": ["x" * 4_097]}, "command", "must be a list"),
        ({"name": "a", "command": [""]}, "command", "names no program"),
        ({"name": "a", "command": ["x", "a\0b"]}, "command", "has a NUL character"),
        ({"name": "a", "command": ["x"], "weight": -1}, "weight", "must be a number"),
        ({"name": "a", "command": ["x"], "timeout_ms": 9}, "timeout_ms", "must be a whole number"),
        ({"name": "a", "command": ["x"], "timeout_ms": 60_001}, "timeout_ms", "must be a whole number"),
        ({"name": "a", "command": ["x"], "every_s": 0}, "every_s", "must be a number"),
        ({"name": "a", "command": ["x"], "wait": 1}, "wait", "no such setting"),
    ],
)
def test_a_criterion_that_cannot_work_is_refused(
    criterion: dict[str, object], key: str, problem: str
) -> None:
    error = refusal([criterion])
    assert error.key == f"scoring.criteria[0].{key}"
    assert problem in error.problem


def test_two_criteria_of_one_name_are_refused() -> None:
    error = refusal([{"name": "a", "command": ["x"]}, {"name": "a", "command": ["y"]}])
    assert error.key == "scoring.criteria[1].name" and "another criterion" in error.problem


def test_criteria_from_the_environment_that_are_no_json_are_refused() -> None:
    with pytest.raises(SettingError, match="not JSON") as caught:
        load(environment={"TOCSIN_SCORING__CRITERIA": "ping"})
    assert "an array such as" in caught.value.remedy


def test_an_empty_score_is_refused_and_one_of_criteria_alone_accepted() -> None:
    zero = {f"scoring.{name}_weight": 0 for name in ("processor", "memory", "bandwidth", "battery")}
    assert "all weights" in refusal(**zero).problem
    criteria = [{"name": "a", "command": ["x"]}]
    assert load(flags={**zero, "scoring.criteria": criteria}).settings.scoring.criteria[0].weight == 1.0


def test_what_tells_a_criterion_for_whom_it_is_asked_is_no_setting() -> None:
    assert load(environment={"TOCSIN_BROKER": "north-1", "TOCSIN_CLUSTER": "north"}).settings == Settings()


FIELD = {"processor": 1.0, "memory": 1.0, "bandwidth": 60.0, "battery": 50.0}  # figure 7 of the paper
EVEN = dict.fromkeys(FIELD, 1.0)


def scoring(configuration: str, **own: object) -> Scoring:
    given = {"configuration": configuration, **own}
    return load(flags={f"scoring.{name}": value for name, value in given.items()}).settings.scoring


@pytest.mark.parametrize(
    ("configuration", "serving", "standby"),
    [("static", EVEN, EVEN), ("mobile-servicing", FIELD, FIELD), ("mobile-backup", EVEN, FIELD)],
)
def test_a_configuration_sets_the_weights_of_those_that_are_mobile(
    configuration: str, serving: dict[str, float], standby: dict[str, float]
) -> None:
    made = scoring(configuration)
    assert (made.weights(), made.weights(standby=True)) == (serving, standby)
    assert made.standby_weights() == {**standby, "delay": 1.0}
    hours = [made.needs(standby=each)["battery"] for each in (False, True)]
    assert hours == [8.0 if weights == FIELD else 1.0 for weights in (serving, standby)]


def test_without_settings_the_configuration_is_static() -> None:
    assert Settings().scoring.configuration == "static"
    assert Settings().scoring.weights() == EVEN and Settings().scoring.changed(standby=True) == {}


def test_a_weight_that_is_set_is_stronger_than_the_configuration() -> None:
    made = scoring("mobile-backup", battery_weight=0, bandwidth_weight=1.0)
    assert made.weights(standby=True) == {**FIELD, "battery": 0.0, "bandwidth": 1.0}
    assert made.changed(standby=True) == {"battery_need": (1.0, 8.0)}
    assert made.changed() == {}, "it says nothing of brokers that serve"
    assert scoring("mobile-servicing", battery_need=2).changed() == {
        "bandwidth_weight": (1.0, 60.0),
        "battery_weight": (1.0, 50.0),
    }


def test_a_weight_left_to_the_configuration_is_said_so() -> None:
    assert "leave it out for what scoring.configuration says" in refusal(scoring__battery_weight=-1).remedy
    made = load(flags={"scoring.configuration": "mobile-backup"}).settings
    assert from_json(to_json(made)) == made
