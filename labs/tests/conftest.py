"""These tests run with the settings of the product's tests."""

from __future__ import annotations

import tests.conftest  # noqa: F401
