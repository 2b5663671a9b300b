"""The coordinator and its brokers: one log of commands, and everything that follows from it.

    broker: ``participant``  ──commands──►  leader  ──append──►  command log  ──►  replicas apply the same
               ▲                                                     │
               └───────────────────── notices ◄──────────────────────┘

A change is a **command**. The leader applies commands to its **state**, and appends them together with the
**notices** that follow from them, one for each broker concerned, always saying which position it expects: *the log
is the fence*. Every reader of the log has the same state; a leader that was frozen and wakes up is refused by the log
and can change nothing.

| module | what it is |
| --- | --- |
| ``coordinator`` | the coordinator's machine: restores, follows, campaigns, leads |
| ``names`` | names of logs, table and subjects; options |
| **``state``** | everything that follows from the commands; pure, the same on every replica |
| ``state.publishers`` | its clients and streams |
| ``state.matching`` | which streams satisfy which queries |
| ``state.interest`` | the brokers' interests, and the routes that follow |
| ``state.backups`` | which brokers back which, and which stand in for lost ones |
| ``state.detours`` | cut links, and the detours around them |
| ``state.spending`` | each user's part of the command log |
| ``state.snapshot`` | the state as bytes, and back |
| **``leader``** | the work of the leading coordinator |
| ``leader.lease``, ``election`` | its claim to lead, and the log's consent |
| ``leader.drafting`` | commands become records; clearance: which brokers have to know first |
| ``leader.broker_watch`` | heartbeats, answers, and lost brokers (``core.survival.detection``) |
| ``leader.backup_planning``, ``rerouting`` | plans of backups and promotions; detours around cut links |
| ``leader.snapshot_writer``, ``snapshot_reader`` | writing snapshots, and reading them slice by slice |
| **``participant``** | the broker's machine: submits commands, follows its notices |
| ``participant.signals`` | its events and effects |
| ``participant.submission`` | the broker's declarations; repeats commands until the log has them |
| ``participant.heartbeat``, ``link_reports`` | its heartbeats and the leader's answers; reports about its links |
| ``participant.network_view`` | its notices in their order; the network that they and messages describe |
"""
