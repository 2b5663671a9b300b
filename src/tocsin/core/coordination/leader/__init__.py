"""The leading coordinator: election and lease, drafts of the next state, plans, and snapshots.

One machine, ``leader``; the other files are its parts, each of one duty, and no two of them are a room of their own.

Only the leader writes commands. ``leader`` applies what brokers submit, ``drafting`` composes the commands, ``lease``
and ``election`` decide which coordinator leads, ``waits`` holds changes that brokers have yet to clear,
``broker_watch`` finds lost brokers, ``backup_planning`` assigns backups.
"""
