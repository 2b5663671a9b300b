"""QoS 0 inside one broker and out to the others: the exchange, its routes, and the fan-out to sockets.

``exchange`` takes what is published and finds who gets its topic, ``fanout`` writes to their sockets. The hot path: the
decisions are those of ``core.forwarding``, and are kept for as long as they are true.
"""
