"""The bridge: carries messages between a network and an AMQP 1.0 broker or router, in both directions.

Everything that decides is without a clock and a socket: ``rules`` and ``settings`` are what the operator asks for,
``mapping`` translates messages, ``inward`` and ``outward`` decide about each message of a rule, ``peer`` is the
client's side of an AMQP connection. ``line`` and ``main`` are the shell.
"""
