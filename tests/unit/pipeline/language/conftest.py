"""Without the extra, none of these modules can be imported; ``test_extra`` says so."""

from __future__ import annotations

import importlib.util

EXTRA = ("sqlglot", "pyarrow")

collect_ignore_glob = (
    [] if all(importlib.util.find_spec(each) for each in EXTRA) else ["test_[!e]*.py", "test_e[!x]*.py"]
)
