-- Emergencies near me: the application of the tutorial (docs/tutorial/emergency.md), which shows these statements.

-- Where people are: the newest place of each user.
CREATE DATASET UserLocations (
  user STRING NOT NULL,
  place POINT NOT NULL,
  at TIMESTAMP NOT NULL
) KEY (user) EVENT TIME at;

-- What has happened, and within how many metres it concerns people.
CREATE DATASET Emergencies (
  id STRING NOT NULL,
  kind STRING NOT NULL,
  place POINT NOT NULL,
  radius DOUBLE NOT NULL,
  at TIMESTAMP
) KEEP 30 DAYS;

-- Where people can go: reference data, from a file.
CREATE DATASET Shelters (name STRING NOT NULL, lon DOUBLE NOT NULL, lat DOUBLE NOT NULL, beds INT) KEY (name);

CREATE FEED Moves INTO UserLocations FROM TOPIC 'people/+/location';
CREATE FEED Reports INTO Emergencies FROM STREAMS WHERE type = 'emergency';

CREATE CHANNEL EmergenciesNearMe(user STRING) EVERY 10 SECONDS AS
  SELECT e.id, e.kind, CAST(DISTANCE(u.place, e.place) AS INT) AS metres, n.shelters
  FROM NEW Emergencies e
  JOIN UserLocations u ON u.user = :user AND WITHIN(u.place, e.place, e.radius)
  LEFT JOIN (
    SELECT x.id, SLICE(ARRAY_SORT(COLLECT_LIST(STRUCT(
             CAST(DISTANCE(x.place, POINT(s.lon, s.lat)) AS INT) AS metres, s.name))), 1, 2) AS shelters
    FROM NEW Emergencies x CROSS JOIN Shelters s
    GROUP BY x.id
  ) n ON n.id = e.id
  ORDER BY e.at;
