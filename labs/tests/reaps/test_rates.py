"""The rates that takeovers are timed by: kept, measured, refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tocsin.errors import OperatorError
from tocsin_labs.reaps import measuring, rates
from tocsin_labs.reaps.measuring import Plan, _Spent
from tocsin_labs.reaps.rates import Measured


def test_the_kept_rates_were_measured_by_the_command() -> None:
    kept = rates.read()
    assert kept.command == "tocsin lab reaps rates" and kept.samples
    assert 0 < kept.rates.prepared_s < kept.rates.created_s + kept.rates.created_store_s < kept.rates.single_s


def test_rates_that_are_written_can_be_read(tmp_path: Path) -> None:
    rates.write(rates.read(), tmp_path / "rates.json")
    assert rates.read(tmp_path / "rates.json") == rates.read()


@pytest.mark.parametrize("text", [None, b"{", b"{}", b"negative", b"no link"])
def test_a_file_without_rates_is_refused(tmp_path: Path, text: bytes | None) -> None:
    path, kept = tmp_path / "rates.json", rates.read()
    if text is not None:
        path.write_bytes(text)
    if text == b"negative":
        rates.write(_with(kept, client_s=-1.0), path)
    if text == b"no link":
        rates.write(_with(kept, fetched_bytes_s=0.0), path)
    with pytest.raises(OperatorError, match=r"rates\.json"):
        rates.read(path)


def _with(measured: Measured, **changed: float) -> Measured:
    return msgspec.structs.replace(measured, rates=msgspec.structs.replace(measured.rates, **changed))


async def test_a_rate_is_the_difference_of_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client costs 3 and 1 s, a prepared subscription 0.2 and 0, a created one 0.5 and 0.25; any run 7 s."""

    async def takeover(way: measuring.Way, clients: int, subscriptions: int) -> _Spent:
        each = (0.2, 0.0) if way == "local" else (0.5, 0.25)
        return _Spent(7 + 3 * clients + each[0] * subscriptions, 7 + clients + each[1] * subscriptions)

    async def given(count: int) -> float:
        return count / 1_000

    monkeypatch.setattr(measuring, "takeover", takeover)
    monkeypatch.setattr(measuring, "singles", given)
    monkeypatch.setattr(measuring, "delivery", given)
    told: list[float] = []
    found = await measuring.measure(Plan(rounds=2), "a test", lambda words, part: told.append(part))
    assert (found.rates.client_s, found.rates.client_store_s) == pytest.approx((3, 1))
    assert (found.rates.prepared_s, found.rates.prepared_store_s) == pytest.approx((0.2, 0))
    assert (found.rates.created_s, found.rates.created_store_s) == pytest.approx((0.5, 0.25))
    assert (found.rates.single_s, found.rates.byte_s) == (0.2, 0.4)
    assert told == sorted(told) and told[-1] <= 1
    assert "`a test`" in found.words
