"""Streams as this broker knows them: ``registry`` of what its clients publish, ``queries`` and ``listings`` for those
who ask. The network's knowledge comes through ``core.coordination.participant``.
"""
