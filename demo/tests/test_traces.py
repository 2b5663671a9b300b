"""Traces in the ONE simulator's format: what is written is read, and what is wrong is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import FileUnreadable, OperatorError
from tocsin_demo import traces
from tocsin_demo.traces import LINE_MAX, RADII_M, Bounds, Emergency, Sample, Trace, emergencies, write

HEADER = "0 600 0 4500 0 3400\n"
BOUNDS = Bounds(0, 600, 0, 4500, 0, 3400)


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    return path


def test_a_trace_of_the_simulator_is_read(tmp_path: Path) -> None:
    lines = (
        "# by hand",
        "",
        "0 600 0 4500 0 3400 0 0",
        "0 user-1 1200.5 800\r",
        "0 7 15 3010.25 0",
        "  # later",
    )
    text = "\n".join((*lines, "100 user-1 1e3 8\n"))
    trace = Trace(file(tmp_path, text))
    assert trace.bounds == BOUNDS
    expected = [Sample(0, "user-1", 1200.5, 800), Sample(0, "7", 15, 3010.25), Sample(100, "user-1", 1000, 8)]
    assert list(trace) == list(trace) == expected


places = st.builds(
    Sample,
    at_s=st.floats(0, 600),
    id=st.text(st.characters(categories=["L", "N"], include_characters="-_."), min_size=1, max_size=20),
    x_m=st.floats(0, 4500),
    y_m=st.floats(0, 3400),
)


@given(st.lists(places, max_size=20))
def test_what_is_written_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, samples: list[Sample]
) -> None:
    samples.sort(key=lambda each: each.at_s)
    path = tmp_path_factory.getbasetemp() / "written.txt"
    assert write(path, BOUNDS, samples) == len(samples)
    trace = Trace(path)
    assert trace.bounds == BOUNDS
    assert list(trace) == samples


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: the header has 0 numbers"),
        ("0 600 0 4500 0\n", "the header has 5 numbers"),
        ("0 600 0 wide 0 3400\n", "'wide' is no number"),
        ("0 6_00 0 4500 0 3400\n", "is no number"),
        ("0 inf 0 4500 0 3400\n", "no finite number"),
        ("600 0 0 4500 0 3400\n", "the least time (600) is above the largest (0)"),
        (HEADER + "0 user-1 5\n", "line 2: 3 words"),
        (HEADER + "0 user-1 5 5 5 5\n", "line 2: 6 words"),
        (HEADER + "soon user-1 5 5\n", "'soon' is no number"),
        (HEADER + "0 user-1 nan 5\n", "no finite number"),
        (HEADER + "0 user-1 4501 5\n", "outside of the header's bounds"),
        (HEADER + "601 user-1 5 5\n", "outside of the header's bounds"),
        (HEADER + "9 user-1 5 5\n8 user-1 5 5\n", "line 3: time goes back from 9 to 8"),
        (HEADER + f"0 {'u' * 129} 5 5\n", "an id of 129 characters"),
        (HEADER + "0 user-1 5 5" + " " * LINE_MAX + "\n", f"line 2: longer than {LINE_MAX} characters"),
        (HEADER + "0 a 5 5\n0 b 5 5\n0 c 5 5\n0 d 5 5\n", "line 5: more than 3 samples"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FileUnreadable) as error:
        list(Trace(file(tmp_path, text), samples_max=3))
    assert said in str(error.value)
    assert "trace.txt" in str(error.value)


def test_too_many_ids_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "IDS_MAX", 1)
    trace = Trace(file(tmp_path, HEADER + "0 a 5 5\n1 a 5 5\n1 b 5 5\n"))
    with pytest.raises(FileUnreadable, match="line 4: more than 1 ids"):
        list(trace)


def test_a_missing_or_binary_file_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    with pytest.raises(FileUnreadable, match="No such file"):
        Trace(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileUnreadable, match="not text"):
        Trace(path)
    path.write_bytes(HEADER.encode() + b"0 user-1 5 5\n" * 2_000 + b"0 \xff 5 5\n")
    with pytest.raises(FileUnreadable, match="not text"):
        list(Trace(path))
    with pytest.raises(FileUnreadable, match="directory"):
        Trace(tmp_path)


def test_an_emergency_has_the_radius_of_its_kind() -> None:
    found = list(emergencies([Sample(10, "flood-3", 5, 6)]))
    assert found == [Emergency(10, "flood-3", "flood", 5, 6, RADII_M["flood"])]
    with pytest.raises(OperatorError, match="'party-1' is of no kind"):
        list(emergencies([Sample(10, "party-1", 5, 6)]))


@pytest.mark.parametrize(
    "samples",
    [
        [Sample(0, "two words", 5, 5)],
        [Sample(0, "", 5, 5)],
        [Sample(0, "a", 5, 9999)],
        [Sample(5, "a", 5, 5), Sample(4, "a", 5, 5)],
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        write(tmp_path / "trace.txt", BOUNDS, samples)


def test_a_place_that_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be written"):
        write(tmp_path / "missing" / "trace.txt", BOUNDS, [])
