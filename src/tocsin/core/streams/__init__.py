"""Streams and their metadata: what publishers state about a topic, and the queries and listings that ask for it.

``machine`` decides what becomes of one client's messages and metadata, and bounds what waits for a coordinator:
``publish_gate`` is the line in which they wait until the network knows their streams, ``metadata`` is what is known at
this broker. ``query_subscriptions`` is the asking side.

The room reads expressions through ``tocsin.query``.
"""
