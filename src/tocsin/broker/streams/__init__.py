"""Streams as this broker knows them: ``registry`` of what its clients publish, ``queries`` and ``listings`` for those
who ask. What the network knows comes through ``core.coordination.participant``.
"""
