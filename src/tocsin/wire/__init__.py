"""Bytes of all protocols: no clock, no socket, and a bound on everything that comes from outside.

``mqtt`` has MQTT 5, 3.1.1 and 3.1 in one vocabulary of packets, ``internal`` the messages between our own processes,
``amqp`` AMQP 1.0 for the bridge, and ``proxy_header`` what a proxy says in front of a client's bytes. May import
``model``, ``ports`` and ``errors``.
"""
