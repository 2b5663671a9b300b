"""Pictures of every kind that the labs and benchmarks draw are written."""

from pathlib import Path

import pytest

from tocsin_labs import drawing


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_written_in_the_format_of_its_name(tmp_path: Path, kind: str) -> None:
    figure, axes = drawing.pyplot().subplots()
    axes.plot([1, 2, 3])
    path = tmp_path / f"curve.{kind}"

    drawing.save(figure, path)

    head = path.read_bytes()[:100]
    assert head.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
