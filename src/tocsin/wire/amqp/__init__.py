"""AMQP 1.0 as bytes: ``values``, ``performatives`` made of them, ``frames`` with a performative each, a ``message``.

A client's part of OASIS AMQP 1.0, parts 1 to 5. Everything read is bounded, and whatever is no AMQP is ``Malformed``.
"""
