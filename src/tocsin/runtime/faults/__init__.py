"""Faults on request, for tests and ``tocsin chaos``: partitions of sockets, and places where a process ends itself."""
