"""The coordinator and its brokers: one log of commands, and everything that follows from it.

    broker: ``participant``  ──commands──►  leader  ──append──►  command log  ──►  replicas apply the same
               ▲                                                     │
               └───────────────────── notices ◄──────────────────────┘

A change is a **command**. The leader applies commands to its **state**, and appends them together with the
**notices** that follow from them, one for each broker concerned, always saying which position it expects: *the log
is the fence*. Whoever reads the log has the same state; a leader that was frozen and wakes up is refused by the log
and can change nothing.

| module | what it is |
| --- | --- |
| ``state`` | everything that follows from the commands; pure, the same on every replica |
| ``presence`` | its part that knows clients and streams (``deadlines``: when they end) |
| ``matching`` | its part that knows which streams satisfy which queries |
| ``interest`` | its part that knows who wants what, and the routes that follow |
| ``survival`` | its part that knows who backs whom, and who stands in for whom |
| ``detours`` | its part that knows which links are cut, and the ways around |
| ``snapshot`` | the state as bytes, and back |
| ``coordinator`` | the machine: restores, follows, campaigns, leads |
| ``lease``, ``election`` | its claim to lead, and how the log agrees to it |
| ``leader`` | what it does then; ``drafting``: how commands become records; ``clearance``: who has to know first |
| ``attention`` | whose beats it hears, what it answers, whom it believes to be lost (``core.survival.detection``) |
| ``rerouting`` | which links between brokers are cut, how far brokers are, and what it does about that |
| ``archivist``, ``restorer`` | how snapshots are written and read, the latter slice by slice |
| ``participant`` | the broker's machine: submits, follows its notices |
| ``signals`` | what a broker's shell and its participant say to each other |
| ``submission`` | how it says things until the log has them; ``roll``: what it has to say; ``outgoing``: the numbers |
| ``heartbeat`` | its beats, and whether a leader hears them |
| ``linkage`` | what it tells of its links |
| ``inbox``, ``picture`` | its notices as they come, and what it knows from them |
| ``clearing`` | which of its changes are not known yet to all whom they concern |
| ``places`` | names of logs, table and subjects; options |
"""
