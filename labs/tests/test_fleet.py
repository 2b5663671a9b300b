"""A fleet without processes: whether it would fit."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from tocsin.errors import OperatorError
from tocsin_labs.fleet import BROKER_BYTES, check_room


def test_more_brokers_than_memory_holds_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    free = SimpleNamespace(available=3 * BROKER_BYTES)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    check_room(3)
    with pytest.raises(OperatorError, match=r"4 brokers need about 600 MiB.*450 MiB are free.*--quick"):
        check_room(4)
