"""Rooms of the coordinator's door: which broker a client belongs to (``choice``), and how it gets there (``door``).

``coordinator.door`` is the shell: listeners, the proxy and the HTTP look-up.
"""
