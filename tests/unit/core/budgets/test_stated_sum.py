"""The sum that ``tocsin doctor`` states."""

from __future__ import annotations

from tocsin.config import SETTINGS, Budgets, Settings, load
from tocsin.core.budgets.budget import Kind
from tocsin.core.budgets.stated_sum import sums_of


def test_every_budget_is_a_part_of_a_broker_with_its_slack() -> None:
    broker = sums_of(Settings())[0]
    found = {part.setting: part.bytes for part in broker.parts}
    for kind in Kind:
        limit: int = SETTINGS[kind.setting].default
        assert found[kind.setting] == limit * 5 // 4


def test_the_parts_name_settings_that_there_are() -> None:
    for each in sums_of(Settings()):
        for part in each.parts:
            assert part.bytes > 0 and (not part.setting or part.setting in SETTINGS)


def test_a_smaller_budget_makes_a_smaller_sum() -> None:
    least = Settings(budgets=Budgets(commits_bytes=16 << 20, store_bytes=64 << 20))
    before, after = (
        {each.process: each.bytes for each in sums_of(settings)} for settings in (Settings(), least)
    )
    assert after["broker"] < before["broker"] and after["store"] < before["store"]
    assert after["coordinator"] == before["coordinator"]


def test_servers_of_somebody_elses_are_not_ours_to_sum_up() -> None:
    settings = load(flags={"nats.urls": "nats://a:4222"}).settings
    assert [each.process for each in sums_of(settings)] == ["broker", "coordinator"]


def test_no_part_is_there_twice_and_tls_counts_where_there_is_tls() -> None:
    plain = load(flags={"brokers": '[{"id": "a", "cluster": "c"}]'}).settings
    files = {"tls.certificate": "a.pem", "tls.key": "a.key"}
    brokers = '[{"id": "a", "cluster": "c", "port": -1, "tls_port": 0}]'
    safe = load(flags={"brokers": brokers, **files}).settings
    without, with_tls = ([part.what for part in sums_of(each)[0].parts] for each in (plain, safe))
    assert all(len(set(names)) == len(names) for names in (without, with_tls))
    assert set(with_tls) - set(without) == {"TLS of connections"}
