"""Files that appear in a folder: each record once, and where the files go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.feeds.desk import Desk, running, until
from tocsin.errors import SourceUnusable
from tocsin.feeds.agents import folder as module
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.agents.folder import FolderAgent, Seen, Watch
from tocsin.model.catalogue import FolderSource
from tocsin.model.feeding import RECORDS
from tocsin.ports import BATCH_MAX


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Watch.__init__, "__defaults__", (0.0,))


def agent(work: Work) -> FolderAgent:
    return FolderAgent(work, poll_s=0.01)


def dropped(folder: Path, name: str, text: str) -> None:
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


async def test_files_are_taken_and_moved_to_done(tmp_path: Path) -> None:
    desk = await Desk.open()
    work = desk.work(FolderSource(str(tmp_path)))
    dropped(tmp_path, "one.csv", "n\n1\n2\n")
    async with running(agent(work)):
        await until(lambda: (tmp_path / "done" / "one.csv").exists(), "the first")
        dropped(tmp_path, "two.jsonl", '{"n": 3}\nno JSON\n')
        await until(lambda: (tmp_path / "done" / "two.jsonl").exists(), "the second")
        await until(lambda: work.outlet.marks == {}, "the end")
    assert [RECORDS.open(entry.payload) for entry in await desk.entries()] == [
        b'[{"n":"1"},{"n":"2"}]',
        b'{"n": 3}',
        b"no JSON",
    ]
    assert (work.counts.records, work.counts.files) == (4, 2)


async def test_a_file_that_cannot_be_read_goes_to_failed_with_the_reason(tmp_path: Path) -> None:
    desk = await Desk.open()
    work = desk.work(FolderSource(str(tmp_path)))
    dropped(tmp_path, "bad.json", "[1")
    dropped(tmp_path, "what.txt", "?")
    dropped(tmp_path, "good.jsonl", '{"n": 1}')
    async with running(agent(work)):
        await until(lambda: work.counts.failed_files == 2 and work.counts.files == 1, "all three")
        await until(lambda: not [each for each in tmp_path.iterdir() if each.is_file()], "moved")
    assert "not JSON" in (tmp_path / "failed" / "bad.json.error").read_text()
    assert "does not say what it is" in (tmp_path / "failed" / "what.txt.error").read_text()
    assert await desk.records() == [{"n": 1}]


async def test_an_unchanged_file_is_taken_once_and_a_changed_one_again(tmp_path: Path) -> None:
    desk = await Desk.open()
    work = desk.work(FolderSource(str(tmp_path)))
    async with running(agent(work)):
        for text, count in (('{"n": 1}', 1), ('{"n": 1}', 1), ('{"n": 2}', 2), ('{"n": 2}', 2)):
            dropped(tmp_path, "a.jsonl", text)
            await until(lambda: not (tmp_path / "a.jsonl").exists(), "taken")
            await until(lambda: work.outlet.marks == {}, "left")
            assert work.counts.records == count
    assert await desk.records() == [{"n": 1}, {"n": 2}]


async def test_a_file_that_was_half_taken_is_gone_on_with(tmp_path: Path) -> None:
    desk = await Desk.open()
    lines = "".join(f'{{"n": {number}}}\n' for number in range(3 * BATCH_MAX))
    dropped(tmp_path, "a.jsonl", lines)
    work = desk.work(FolderSource(str(tmp_path)))
    async with running(agent(work)):
        await until(lambda: work.counts.records >= BATCH_MAX, "a part")
    assert (tmp_path / "a.jsonl").exists() or work.counts.files
    async with running(agent(desk.work(FolderSource(str(tmp_path))))):
        await until(lambda: (tmp_path / "done" / "a.jsonl").exists(), "the rest")
    assert [each["n"] for each in await desk.records()] == list(range(3 * BATCH_MAX))


async def test_a_file_that_was_taken_whole_but_not_moved_is_only_moved(tmp_path: Path) -> None:
    desk = await Desk.open()
    dropped(tmp_path, "a.jsonl", '{"n": 1}\n')

    class Stopped(FolderAgent):
        async def _leave(self, *arguments: object) -> None:
            await asyncio.Event().wait()

    work = desk.work(FolderSource(str(tmp_path)))
    async with running(Stopped(work, poll_s=0.01)):
        await until(lambda: work.counts.files == 1, "taken")
    async with running(agent(desk.work(FolderSource(str(tmp_path))))):
        await until(lambda: (tmp_path / "done" / "a.jsonl").exists(), "moved")
    assert await desk.records() == [{"n": 1}]


async def test_files_that_are_being_written_folders_and_links_are_left_alone(tmp_path: Path) -> None:
    desk = await Desk.open()
    for name in (".hidden.csv", "a.csv.tmp", "b.part", "c.partial"):
        (tmp_path / name).write_text("n\n1\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / ".hidden.csv")
    work = desk.work(FolderSource(str(tmp_path)))
    dropped(tmp_path, "z.jsonl", '{"n": 1}')
    async with running(agent(work)):
        await until(lambda: work.counts.files == 1, "the one")
    assert await desk.records() == [{"n": 1}]
    assert (tmp_path / "link.csv").is_symlink()


async def test_a_folder_that_is_not_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    desk = await Desk.open()
    with pytest.raises(SourceUnusable, match="Make the folder"):
        await agent(desk.work(FolderSource(str(tmp_path / "nowhere")))).run()


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 1)), st.floats(0.1, 0.7, allow_nan=False)
        ),
        max_size=20,
    )
)
def test_a_file_is_ready_once_it_was_the_same_for_long_enough(
    looks: list[tuple[dict[str, int], float]],
) -> None:
    watch = Watch(1.0)
    now = 0.0
    history: list[tuple[float, dict[str, int]]] = []
    for files, step in looks:
        now += step
        history.append((now, files))
        seen = [Seen(name, (version, 0, 0)) for name, version in files.items()]
        ready = {each.name for each in watch.look(seen, now)}
        # The dumb way: go back through all looks for as long as each file was as it is now.
        expected = set()
        for name, version in files.items():
            since = now
            for at, before in reversed(history):
                if before.get(name) != version:
                    break
                since = at
            if now - since >= 1.0:
                expected.add(name)
        assert ready == expected
