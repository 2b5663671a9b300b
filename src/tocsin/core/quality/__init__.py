"""Offers and requests: the quality of service that publishers state and subscribers ask for.

``texts`` reads and writes both, ``matching`` compares them as DDS does, ``judging`` decides whether one message is for
a subscription with a request, and ``separation`` leaves out what comes too soon. ``offers`` knows what the streams
offer that requests here are about, and tells both ends of what does not match. ``deadlines``, ``leases`` and
``liveness``, ``lateness`` and ``ownership`` are about one policy each; ``stamps`` and ``resending`` are about flows at
QoS 0.

The room knows no client's connection, and reads expressions through ``tocsin.query``.
"""
