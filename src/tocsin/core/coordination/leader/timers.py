"""The timers of a coordinator. Its parts set them; ``Coordinator`` handles them all."""

from __future__ import annotations

from enum import StrEnum


class CoordinatorTimer(StrEnum):
    """The timers of a coordinator."""

    CAMPAIGN = "campaign"  # to claim the lease, or to ask again for it
    AGAIN = "again"  # to ask again: for a snapshot, for the log's end, for the leadership
    REBUILD = "rebuild"  # for the next slice of a state that is restored
    RENEW = "renew"  # to ask for a longer lease
    LAPSE = "lapse"  # when the lease ends; any event at that time does
    CHECK = "check"  # of a leader: of its brokers, and of clients that wait
    APPEND = "append"  # of a leader: an answer of the log is missing
    PACE = "pace"  # of a leader: to append what gathered while many were being told
    PLAN = "plan"  # of a leader: whether backups are to be planned
    PROMOTE = "promote"  # of a leader: whether a standby is to take a place
    SNAPSHOT = "snapshot"  # to begin one
    ARCHIVE = "archive"  # to ask again for what a snapshot needs
