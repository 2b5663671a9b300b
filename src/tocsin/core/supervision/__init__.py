"""Keeping the processes of a network alive: what to start again, when, and when to give up.

``machine`` is the supervisor's decision for every process; ``signals`` its events and effects. Processes are started
and watched by ``runtime.network``.
"""
