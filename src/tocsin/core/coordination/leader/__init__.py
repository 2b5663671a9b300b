"""The leading coordinator: election and lease, drafts of the next state, plans, and snapshots.

Only the leader writes commands. ``leader`` applies what brokers submit, ``drafting`` composes the commands, ``lease``
and ``election`` say who leads, ``waits`` holds what brokers have yet to clear, ``broker_watch`` and ``backup_planning``
find out who is gone and who backs whom.
"""
