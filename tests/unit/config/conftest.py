"""What tests of settings share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tocsin.config import File, load
from tocsin.errors import SettingError

Refusal = Callable[..., SettingError]


@pytest.fixture
def refused() -> Refusal:
    """Load a file's text, an environment or flags, and hand back the refusal."""

    def load_it(
        text: str = "", environment: dict[str, str] | None = None, flags: dict[str, object] | None = None
    ) -> SettingError:
        with pytest.raises(SettingError) as caught:
            load(file=File("tocsin.toml", text), environment=environment, flags=flags)
        assert caught.value.problem and caught.value.remedy
        return caught.value

    return load_it
