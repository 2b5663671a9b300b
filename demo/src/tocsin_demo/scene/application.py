"""The application of the prototype: emergencies near me, in SQL, and the messages that feed it.

Each subscriber tells where it is on a topic of its own, over its own connection. Emergencies are messages of streams
that are described as such, one for each kind. The channel joins what is new with where people are *now*, in time (a
place that was told within PLACE_S counts) and in space (within the emergency's radius). Fires and floods are
critical: they overtake crashes and storms.

An emergency has a number, by which its results are known and ordered: those of one subscriber, execution and class
come in the order of their numbers.
"""

from __future__ import annotations

from typing import Any, Final

from tocsin_demo.traces import Emergency

CHANNEL: Final = "EmergenciesNearMe"
CRITICAL: Final = 7  # the least priority that overtakes (decision 028)
LEVELS: Final = {"fire": 9, "flood": 8, "crash": 5, "storm": 3}  # priority by kind
PLACE_S: Final = 600  # how long it is believed that somebody is where it said it was
EMERGENCY: Final = "emergency"

_DEFINITIONS: Final = """
CREATE DATASET UserLocations (user STRING NOT NULL, place XY NOT NULL, at TIMESTAMP NOT NULL)
  KEY (user) EVENT TIME at;
CREATE DATASET Emergencies (number INT NOT NULL, id STRING NOT NULL, kind STRING NOT NULL, level INT NOT NULL,
  place XY NOT NULL, radius DOUBLE NOT NULL, at TIMESTAMP);
CREATE FEED Moves INTO UserLocations FROM TOPIC 'people/+/location';
CREATE FEED Reports INTO Emergencies FROM STREAMS WHERE type = 'emergency';
CREATE CHANNEL EmergenciesNearMe(userName STRING) EVERY {period_s} SECONDS PRIORITY BY level AS
  SELECT u.user, e.number, e.id, e.kind, e.level, CAST(DISTANCE(u.place, e.place) AS INT) AS metres
  FROM NEW Emergencies e
  JOIN UserLocations u ON u.user = :userName AND WITHIN(u.place, e.place, e.radius)
  WHERE SINCE(u.at, INTERVAL '{place_s}' SECONDS)
  ORDER BY e.number;
"""


def definitions(period_s: int) -> str:
    """The datasets, feeds and the channel."""
    return _DEFINITIONS.format(period_s=period_s, place_s=PLACE_S)


def location_topic(user: str) -> str:
    return f"people/{user}/location"


def location(user: str, x_m: float, y_m: float) -> dict[str, Any]:
    """A subscriber's position, as it publishes it."""
    return {"user": user, "place": {"x": x_m, "y": y_m}}


def emergency_topic(kind: str) -> str:
    return f"city/{kind}"


def report(number: int, emergency: Emergency) -> dict[str, Any]:
    """An emergency, as it is published."""
    return {
        "number": number,
        "id": emergency.id,
        "kind": emergency.kind,
        "level": LEVELS.get(emergency.kind, 0),
        "place": {"x": emergency.x_m, "y": emergency.y_m},
        "radius": emergency.radius_m,
    }
