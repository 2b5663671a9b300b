"""What a run of Table 4 comes to."""

from __future__ import annotations

import msgspec

from tocsin.config import Recovery
from tocsin_labs.landmark.crowd import Account
from tocsin_labs.landmark.latency import STANDS_IN, Outcome, Trial, brokers_of, network_settings, stood_in
from tocsin_labs.landmark.plan import QUICK, Latency, Plan


def outcome(broker: str, **times: float | None) -> Outcome:
    known: dict[str, float | None] = {
        name: times.get(name, 1.0)
        for name in ("detected_s", "taken_over_s", "back_s", "first_s", "served_s", "replaced_s")
    }
    return Outcome(broker=broker, by="b", bereft=False, at_backup=1, subscribers=2, **known)


def trial(*outcomes: Outcome) -> Trial:
    return Trial(
        detect="default", failures=len(outcomes), run=1, outcomes=outcomes, account=Account(), wrongly=0
    )


def test_a_broker_has_recovered_when_its_backup_serves_all_its_subscribers() -> None:
    assert outcome("a", taken_over_s=1.5, served_s=0.2).recovered_s == 1.5
    assert outcome("a", taken_over_s=1.5, served_s=2.5).recovered_s == 2.5
    assert outcome("a", taken_over_s=None).recovered_s is None
    assert outcome("a", served_s=None).recovered_s is None
    alone = msgspec.structs.replace(outcome("a", taken_over_s=None, served_s=0.7), bereft=True)
    assert alone.recovered_s == 0.7, "nobody is left who could stand in"


def test_a_run_ends_with_the_last_recovery_and_never_without_it() -> None:
    assert trial(outcome("a", served_s=0.5), outcome("b", served_s=3.0)).last("recovered_s") == 3.0
    assert trial(outcome("a"), outcome("b", served_s=None)).last("recovered_s") is None


def line(**facts: object) -> bytes:
    return msgspec.json.encode({"timestamp": "2026-05-01T10:00:00.500000Z", "event": STANDS_IN, **facts})


def test_the_moment_of_taking_over_is_read_from_the_backups_log() -> None:
    at = 1_777_629_600.5
    lines = [b"no JSON " + STANDS_IN.encode(), line(broker="other"), line(broker="a", epoch=4)]
    assert stood_in(lines, "a", at - 1) == at
    assert stood_in(lines, "a", at + 1) is None, "that was an earlier run"
    assert stood_in([line(broker="a", timestamp="yesterday")], "a", 0.0) is None
    assert stood_in([line(broker="a", event=f"{STANDS_IN}, they say")], "a", 0.0) is None


def test_24_brokers_have_as_many_standbys_as_ever_fail() -> None:
    plan = Latency()
    brokers = brokers_of(plan)
    assert len({broker.id for broker in brokers}) == len(brokers) == 24
    standbys = [broker.cluster for broker in brokers if broker.role == "standby"]
    assert {*standbys} == {"c1", "c2", "c3", "c4"} and len(standbys) >= max(plan.failures)


def test_the_wait_for_a_standby_is_the_products_own() -> None:
    plan, own = Plan(), Recovery().promote_after_ms
    waits = [each.promote_after_ms for each in (plan.latency, plan.objects, plan.sequence, plan.scale)]
    assert waits == [own] * 4 == [0] * 4


def test_the_largest_number_of_failures_leaves_the_publishers_broker() -> None:
    for plan in (Latency(), QUICK.latency):
        serving = [broker for broker in brokers_of(plan) if broker.role != "standby"]
        assert max(plan.failures) < len(serving)


def test_the_network_matches_the_plan_and_its_brokers_log_events() -> None:
    settings = network_settings(brokers_of(Latency()), "aggressive", 700)
    assert settings.membership.detect == "aggressive"
    assert settings.recovery.promote_after_ms == 700
    assert settings.log.level == "warning"
    assert settings.pipeline.enabled == "never"
