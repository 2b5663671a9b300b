"""The HTTP endpoint of feeds: ``endpoint`` answers ``POST /feeds/NAME``, ``server`` is HTTP/1.1 below it.

``intake`` reads a request as records; ``keys`` decides about requests with an ``Idempotency-Key``, ``idempotency``
appends them once. ``intake`` and ``keys`` are pure.
"""
