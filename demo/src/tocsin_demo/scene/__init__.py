"""The prototype's scene (REAPS, section VI.A), on real processes: a city, its people, emergencies, brokers that fail.

A network of its own is started (the store, a coordinator, two clusters of two brokers, Spark and the feeder), and an
application defined in SQL: ``EmergenciesNearMe(userName)``, run every ``period_s``, joins what is new with where
people are now. Each of (by default) 400 people is a subscriber, a client with a lasting session that is at home at
one broker; a few processes have them all. They walk, things happen, brokers are killed and come back; in the end what
the backend committed for everybody is held against what everybody got. ``make demo`` plays it, ``tocsin lab reaps
prototype`` measures on it.

    script = Script(homes=homes(400, exactly={"north-1": 97}), period_s=10)
    async with scene(script, tell=print) as played:          # network, application, subscribers: ready
        await played.begin()                                 # movement and emergencies, as the script has them
        failure = played.kill("north-1")                     # or kill_cluster("south"), or stop(…), which is SIGTERM
        course = await played.recovered(failure, 60.0)       # all who were there are served again
        played.bring_back("north-1")
        await played.healthy(60.0)                           # all brokers are ready, everybody is at home again
        await played.finish()                                # nothing more happens; everything is executed
        print(await played.account())                        # delivered, lost, duplicates, out of order

While it runs, ``played.ledger`` knows where everybody is (``presence``, ``away``, ``abroad``), what came
(``received``, ``rate``, ``arrivals``) and how each came through a failure (``passage``); ``played.brokers`` the
processes, ``played.chronicle`` what the coordinators decided, ``played.backend`` the pipeline (``channel``, ``ask``),
and ``played.course(failure)`` how far a recovery is: killed, declared lost, taken over; for each subscriber when its
connection broke, when a broker had taken its session, and when its program was given the next notification.
``strike`` publishes an emergency that is not in the script: one with a large radius reaches everybody. All times are
of the machine's monotonic clock. ``played.check()`` raises what has gone wrong beside.

Subscribers may come later (``Script.later``, ``come``), and go for a while (``go``): these are absent, and nobody waits
for them.

A remote fail-over of one broker needs a cluster in which nobody else can stand in: ``homes(…, clusters={"north": 1,
"south": 2})``, or the local backup killed before.

| module | what it is |
| --- | --- |
| ``script`` | the users' homes, their movements, the emergencies; the network's settings |
| ``application`` | datasets, feeds and the channel in SQL, and the messages that feed them |
| ``crowd``, ``crowd_processes`` | the subscribers, in processes of their own; these processes, from outside |
| ``publisher`` | the publisher of emergencies |
| ``down`` | killing brokers, and keeping them down |
| ``ledger``, ``chronicle``, ``course`` | what subscribers see, what coordinators decide, and how a recovery went |
| ``backend``, ``account`` | what was committed; held against what was received |
| ``notices`` | the moment in which results are there |
| ``scene`` | all of it |
"""

from tocsin_demo.scene.account import Account, Result
from tocsin_demo.scene.course import Course, Failure
from tocsin_demo.scene.ledger import Ledger, Passage, Presence
from tocsin_demo.scene.scene import Scene, scene
from tocsin_demo.scene.script import Home, Script, homes

__all__ = [
    "Account",
    "Course",
    "Failure",
    "Home",
    "Ledger",
    "Passage",
    "Presence",
    "Result",
    "Scene",
    "Script",
    "homes",
    "scene",
]
