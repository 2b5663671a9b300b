"""Options that commands share."""

from __future__ import annotations

import inspect
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tocsin.cli.options import made_by
from tocsin.errors import OperatorError


def _place(
    host: Annotated[str, typer.Option("--host")] = "here", port: Annotated[int, typer.Option("--port")] = 1
) -> str:
    if port == 0:
        raise OperatorError("port 0 is none", "Give another one")
    return f"{host}:{port}"


app = typer.Typer()
heard: list[tuple[str, str, bool]] = []


@app.command()
@made_by(_place, "place")
def call(place: str, name: Annotated[str, typer.Argument()], loud: bool = False) -> None:
    """Call somebody."""
    heard.append((place, name, loud))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["ann"], ("here:1", "ann", False)),
        (["--port", "7", "ann", "--loud"], ("here:7", "ann", True)),
        (["ann", "--host", "there"], ("there:1", "ann", False)),
    ],
)
def test_a_command_gets_what_is_made_from_the_options(words: list[str], given: tuple[str, str, bool]) -> None:
    heard.clear()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert heard == [given]


def test_a_command_keeps_its_own_options_first_and_its_words() -> None:
    assert list(inspect.signature(call).parameters) == ["name", "loud", "host", "port"]
    assert call.__doc__ == "Call somebody."
    assert "--place" not in CliRunner().invoke(app, ["--help"]).output


def test_a_command_does_not_run_if_its_options_are_refused() -> None:
    heard.clear()
    assert isinstance(CliRunner().invoke(app, ["ann", "--port", "0"]).exception, OperatorError)
    assert not heard
