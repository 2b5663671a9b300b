"""What a user of SQL may do and see, and what the audit log is told."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

from tocsin.pipeline.definitions.rights import SqlRules  # noqa: E402
from tocsin.pipeline.definitions.statements import StatementRunner  # noqa: E402
from tocsin.runtime.security.audit import Audit  # noqa: E402
from tocsin.runtime.security.folders import Folders  # noqa: E402

if TYPE_CHECKING:
    from tests.unit.pipeline.shops import Workshop

RULES = """
[[sql]]
allow = "all"
names = ["Mine*"]
users = ["ann"]

[[sql]]
allow = "query"
names = ["Reports"]
users = ["ann"]
"""


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Workshop]:
    from tests.unit.pipeline.shops import Workshop

    (tmp_path / "rules.toml").write_text(RULES)
    made = Workshop(tmp_path)
    await made.open()
    made.desk = StatementRunner(
        made.definitions,
        made.threads,
        rules=SqlRules(str(tmp_path / "rules.toml")),
        audit=Audit(tmp_path / "state"),
        folders=Folders([str(tmp_path / "spool")], tmp_path / "state"),
    )
    script = "CREATE DATASET Reports (who STRING NOT NULL); CREATE DATASET Secret (plan STRING NOT NULL);"
    assert (await made.desk.run(script, limit=1)).error is None
    yield made
    made.close()


def audited(work: Workshop) -> list[dict[str, str]]:
    path = Path(work.root) / "state" / "audit" / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()]


DENIED = [
    ("DROP DATASET Reports", "may not drop Reports"),
    ("CREATE DATASET Other (n INT NOT NULL)", "may not define Other"),
    ("CREATE FEED MineWire INTO Reports FROM TOPIC 'a'", "may not define Reports"),
    ("SELECT plan FROM Secret", "Secret"),
    ("SELECT nothing FROM Secret", "Secret"),
    ("DESCRIBE Secret", "Secret"),
    ("DROP DATASET Secret", "Secret"),
    (
        "CREATE CHANNEL MineSpy(who STRING) CONTINUOUS AS SELECT s.plan FROM NEW Secret s WHERE s.plan = :who",
        "Secret",
    ),
]


@pytest.mark.parametrize(("text", "words"), DENIED)
async def test_what_rules_do_not_allow_is_refused_and_noted(work: Workshop, text: str, words: str) -> None:
    reply = await work.desk.run(text, limit=10, user="ann")
    assert reply.error is not None and words.lower() in reply.error.message.lower(), reply
    assert "plan" not in reply.error.message + reply.error.remedy  # no column of what ann may not see
    last = audited(work)[-1]
    assert (last["who"], last["what"]) == ("ann", text) and last["outcome"] in ("refused", "failed")
    assert {"reports", "secret"} == set(work.catalogue.datasets)
    assert not work.catalogue.feeds and not work.catalogue.channels


@pytest.mark.parametrize("name", ["Secret", "Nothing"])
async def test_the_audit_log_knows_what_a_user_is_not_told(work: Workshop, name: str) -> None:
    for text in (f"SELECT * FROM {name}", f"DESCRIBE {name}", f"DROP DATASET {name}"):
        reply = await work.desk.run(text, limit=10, user="ann")
        assert reply.error is not None and reply.error.message.startswith("there is no dataset")
        last = audited(work)[-1]
        hidden = name == "Secret"
        assert last["outcome"] == ("refused" if hidden else "failed")
        assert ("may not" in last["problem"]) == hidden


async def test_what_keeps_a_dataset_from_being_dropped_stays_hidden_too(work: Workshop) -> None:
    own = "CREATE DATASET MineOwn (n INT NOT NULL); CREATE FEED MineWire INTO MineOwn FROM TOPIC 'a'"
    assert (await work.desk.run(own, limit=1, user="ann")).error is None
    hidden = await work.desk.run("CREATE FEED SecretWire INTO MineOwn FROM TOPIC 'b'", limit=1)
    assert hidden.error is None
    reply = await work.desk.run("DROP DATASET MineOwn", limit=1, user="ann")
    assert reply.error is not None and "feed MineWire" in reply.error.message
    assert "SecretWire" not in reply.error.message and "operator" in reply.error.remedy
    reply = await work.desk.run("DROP DATASET MineOwn", limit=1)
    assert reply.error is not None and "feed MineWire, feed SecretWire" in reply.error.message


async def test_what_rules_allow_is_done_and_noted(work: Workshop) -> None:
    script = "CREATE DATASET MineOwn (n INT NOT NULL); CREATE FEED MineWire INTO MineOwn FROM TOPIC 'a'; SHOW DATASETS"
    reply = await work.desk.run(script, limit=10, user="ann")
    assert reply.error is None
    assert [row[0] for row in reply.results[2].rows] == ["MineOwn", "Reports"]  # Secret is not listed
    noted = [
        (each["action"], each["name"], each["outcome"]) for each in audited(work) if each["who"] == "ann"
    ]
    assert noted == [
        ("define", "MineOwn", "done"),
        ("define", "MineWire", "done"),
        ("query", "datasets", "done"),
    ]
    assert (
        await work.desk.run("DROP FEED MineWire; DROP DATASET MineOwn", limit=1, user="ann")
    ).error is None
    everything = await work.desk.run("SHOW DATASETS", limit=10)
    assert [row[0] for row in everything.results[0].rows] == ["Reports", "Secret"]


async def test_changed_rules_hold_and_broken_ones_do_not(work: Workshop) -> None:
    path = Path(work.root) / "rules.toml"
    path.write_text("[[sql]]\nallow = 'all'\nnames = ['*']\n")
    os.utime(path, (1, 1))
    assert (await work.desk.run("DESCRIBE Secret", limit=1, user="ben")).error is None
    path.write_text("[[sql")
    assert (await work.desk.run("DESCRIBE Secret", limit=1, user="ben")).error is None


async def test_feeds_read_files_where_they_may(work: Workshop) -> None:
    spool = Path(work.root) / "spool"
    good = await work.desk.run(f"CREATE FEED F INTO Reports FROM FOLDER '{spool / 'in'}'", limit=1)
    assert good.error is None
    for bad in ("/etc", str(Path(work.root) / "state" / "nats")):
        reply = await work.desk.run(f"CREATE FEED G INTO Reports FROM FOLDER '{bad}'", limit=1)
        assert (
            reply.error is not None and bad in reply.error.message and "feeds.folders" in reply.error.remedy
        )
