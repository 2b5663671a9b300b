"""The NATS protocol, our own: ``protocol`` is bytes without sockets, ``client`` one connection to one server.

``connection`` dials the servers in turn and comes back after a loss; ``login`` and ``nkeys`` say who we are. Knows
nothing of streams: ``jetstream`` sends its requests through ``connection``.
"""
