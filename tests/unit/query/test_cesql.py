"""The test kit of CloudEvents SQL 1.0 (see cesql_tck/README.md), every test of it; what we do otherwise is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import QueryInvalid
from tocsin.query.evaluate import evaluate
from tocsin.query.grammar import read
from tocsin.query.limits import DEFAULT
from tocsin.query.values import Failure, Metadata, Value

KIT: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "cesql_tck" / "tests.json").read_text()
)
EVENT: Metadata = {"specversion": "1.0", "id": "myId", "source": "localhost.localdomain", "type": "myType"}
REFUSED = ("parse", "missingFunction")  # errors that we find when the query is read
FAILURES = {
    "math": Failure.MATH,
    "cast": Failure.CAST,
    "functionEvaluation": Failure.FUNCTION,
    "missingAttribute": Failure.MISSING,
}
# Test → what we give instead: docs/reference/queries.md says why.
OTHERWISE: dict[str, tuple[Value, Failure | None]] = {
    # Keys are case sensitive: SOURCE is not source.
    "exists_expression: required attributes always exist": (False, None),
    # The specification (3.7) casts integers to booleans, 10 to true; this test is older than that.
    "not_operator: Invalid int cast": (False, None),
    # Whole numbers have 64 bits, so that this is none of the limits.
    "integer_builtin_functions: ABS overflow": (2147483648, None),
}
TESTS = {f"{file}: {test['name']}": test for file, tests in KIT.items() for test in tests}


def outcome(test: dict[str, Any]) -> tuple[Value, Failure | None]:
    metadata = {**test.get("event", EVENT), **test.get("eventOverrides", {})}
    return evaluate(read(test["expression"], DEFAULT), metadata)


def test_the_whole_conformance_kit_is_present_with_unique_test_names() -> None:
    assert len(TESTS) == sum(map(len, KIT.values())) == 275
    assert TESTS.keys() >= OTHERWISE.keys()


@pytest.mark.parametrize("name", [name for name in TESTS if name not in OTHERWISE])
def test_cloudevents_sql_is_understood(name: str) -> None:
    test = TESTS[name]
    if test.get("error") in REFUSED:
        with pytest.raises(QueryInvalid):
            outcome(test)
        return
    value, failure = outcome(test)
    assert (value.__class__, value) == (test["result"].__class__, test["result"])
    assert failure is (FAILURES[test["error"]] if "error" in test else None)


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_we_do_otherwise_is_as_documented(name: str) -> None:
    assert outcome(TESTS[name]) == OTHERWISE[name]
