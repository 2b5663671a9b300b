"""Faults on request, for tests and ``tocsin chaos``; without a request nothing here does anything.

``kill_points`` are named places at which a process ends itself when it is told to. ``partition`` says which addresses a
process must not reach, and ``partition_socket`` keeps its sockets from them. Shells ask here; machines never do.
"""
