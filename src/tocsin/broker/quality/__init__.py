"""Requests of quality in one broker: which messages a subscription with a request gets, when, and who is told of what
does not match. ``requests`` is the shell of ``core.quality``. It knows clients only as ``broker.client`` has them.
"""
