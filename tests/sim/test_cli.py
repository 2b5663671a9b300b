"""``tocsin sim`` as a person uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tocsin.cli.verbs.sim import app

PLANTED = Path(__file__).parent / "planted" / "counted_twice.py"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_the_scenarios_are_listed() -> None:
    code, output = invoke("list")
    assert code == 0
    assert "counter" in output
    code, output = invoke("list", "--from", str(PLANTED))
    assert "counted-twice" in output


def test_runs_that_break_nothing_end_with_nought_and_their_speed() -> None:
    code, output = invoke("run", "counter", "--runs", "20")
    assert code == 0
    assert "20 runs in" in output and "events/s" in output and "no invariant broke" in output


def test_one_seed_can_be_run() -> None:
    code, output = invoke("run", "counter", "--seed", "5")
    assert code == 0
    assert "1 runs in" in output


def test_a_failure_shows_its_seed_faults_last_events_and_replay_command() -> None:
    code, output = invoke("run", "counted-twice", "--from", str(PLANTED), "--runs", "300")
    assert code == 1
    lines = [line.strip() for line in output.splitlines()]
    (replay,) = [line for line in lines if line.startswith("replay it: ")]
    seed = replay.split("--seed ")[1].split()[0]
    assert any(line.startswith(f"seed {seed},") for line in lines)
    assert "BROKEN: the log is one history" in lines
    assert "faults:" in lines
    assert "lines before; all of them with --full" in output
    assert len(lines) < 100


def test_all_seeds_are_run_and_the_broken_ones_listed_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.cli.verbs.sim.TELL_S", 0.0)
    run = ("run", "counted-twice", "--from", str(PLANTED), "--runs", "300")
    _, first = invoke(*run)
    code, output = invoke(*run, "--keep-going")
    assert code == 1 and "300 runs in" in output
    (listed,) = [line for line in output.splitlines() if " broke: " in line]
    seeds = listed.partition(" broke: ")[2].split(", ")
    assert first.split("--seed ")[1].split()[0] == seeds[0] and len(seeds) > 1


def test_progress_is_told_in_plain_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin.cli.verbs.sim.TELL_S", 0.0)
    result = CliRunner().invoke(app, ["run", "counter", "--runs", "3"])
    assert result.stderr.splitlines() == [f"counter: {done} of 3 runs, 0 broken" for done in (1, 2, 3)]
    assert "of 3 runs" not in result.stdout


def test_a_replay_tells_the_whole_story_and_fails_as_the_run_did() -> None:
    code, output = invoke("run", "counted-twice", "--from", str(PLANTED), "--runs", "300")
    seed = output.split("--seed ")[1].split()[0]
    code, story = invoke("run", "counted-twice", "--from", str(PLANTED), "--seed", seed, "--replay")
    assert code == 1
    assert "0.000000 server/1" in story and "--full" not in story
    code, full = invoke("run", "counted-twice", "--from", str(PLANTED), "--seed", seed, "--full")
    assert code == 1
    assert "0.000000 server/1" in full


def test_a_replay_of_a_run_that_breaks_nothing_ends_with_nought() -> None:
    code, output = invoke("run", "counter", "--seed", "5", "--replay")
    assert code == 0
    assert "BROKEN" not in output and "nemesis" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "conter"), "there is no scenario 'conter'"),
        (("run", "counter", "--replay"), "--seed N"),
        (("run", "counter", "--seed", "1", "--runs", "2"), "do not go together"),
        (("run", "counter", "--runs", "0"), "Give 1 or more"),
        (("run", "counter", "--jobs", "0"), "Give 1 to 256"),
        (("run", "counter", "--from", "nowhere.py"), "there is no such file"),
        (("list", "--from", "nowhere.py"), "there is no such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_words_with_exit_code_two(
    arguments: tuple[str, ...], words: str
) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert words in " ".join(output.split())
    assert "Traceback" not in output


def test_whole_brokers_are_heard_by_promises_though_the_program_is_quiet() -> None:
    command = [sys.executable, "-m", "tocsin", "sim", "run", "durable", "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "no invariant broke" in done.stdout
