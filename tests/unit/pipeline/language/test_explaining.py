"""A plan in words."""

from __future__ import annotations

import pytest

from tests.unit.pipeline.language.oracle import channel, channel_of, datasets_of
from tests.unit.pipeline.language.rooms import DATASETS
from tocsin.pipeline.execution.compiled import compile_channel
from tocsin.pipeline.language.explaining import explain

PLACES = datasets_of(
    """CREATE DATASET Emergencies (id BIGINT, kind STRING, place XY, radius DOUBLE);
    CREATE DATASET Locations (user STRING, place XY) KEY (user)"""
)


def test_the_emergency_channel_is_explained() -> None:
    made = channel_of(
        """CREATE CHANNEL EmergenciesNearMe(user STRING) EVERY 10 SECONDS AS
        SELECT e.id, e.kind FROM NEW Emergencies e JOIN Locations u
        ON u.user = :user AND WITHIN(u.place, e.place, e.radius) WHERE e.kind <> 'test'"""
    )
    compiled = compile_channel(made, PLACES)

    assert explain(compiled).splitlines() == [
        "EmergenciesNearMe(user STRING), every 10 s",
        f"one query for all subscriptions, shared by all channels of this shape ({compiled.template.id})",
        "constants that another channel of this shape may have differently: 'test'",
        "reads Emergencies, only what is new since the last execution",
        "reads Locations, as a whole",
        ":user = u.user: subscriptions are joined by this equality",
        "WITHIN: e is spread over the cells of its radius, joined with the cell of u, then checked",
    ]


@pytest.mark.parametrize(
    ("parameters", "query", "said"),
    [
        (
            "lo DOUBLE",
            "SELECT id FROM Reports WHERE temp > :lo",
            ":lo in reports.temp > ?: compared for each candidate",
        ),
        ("p STRING", "SELECT id FROM Reports WHERE note LIKE :p", ":p as a pattern of reports.note"),
        ("p STRING", "SELECT id, :p AS x FROM Reports", ":p as a value"),
        ("p STRING", "SELECT id FROM Reports WHERE kind IN (:p, 'x')", ":p in a list of reports.kind"),
        ("p STRING", "SELECT count(*) AS n FROM Reports WHERE room = :p", "one result for each subscription"),
        (
            "p STRING",
            "SELECT id FROM Reports WHERE room = :p ORDER BY id LIMIT 3",
            "within each subscription",
        ),
        (
            "p STRING",
            "WITH a AS (SELECT id FROM Reports WHERE room = :p) SELECT id FROM a",
            "WITH a: computed for each",
        ),
        (
            "p STRING",
            "WITH a AS (SELECT room FROM Rooms) SELECT room FROM a WHERE room = :p",
            "WITH a: computed once",
        ),
        (
            "p STRING",
            "SELECT id FROM NEW Reports WHERE MATCHES(note, :p)",
            "the longest word of the subscription",
        ),
        (
            "p STRING",
            "SELECT r.id FROM Reports r JOIN Rooms m ON m.room = r.room AND MATCHES(r.note, m.name) WHERE m.room = :p",
            "MATCHES is checked for the pairs that an equality finds",
        ),
    ],
)
def test_each_part_is_explained(parameters: str, query: str, said: str) -> None:
    assert said in explain(compile_channel(channel(parameters, query), DATASETS))
