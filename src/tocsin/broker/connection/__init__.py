"""One client's connection: it decodes packets, runs ``core.session``, and writes what the client is sent.

``connection`` is the shell. Its parts are ``writer`` (what leaves it), ``publish`` (what the client publishes),
``subscribe`` (what it asks for), ``pacing`` and ``turns`` (when it is read). The other rooms see it as a
``broker.client.Client``.

It hands QoS 0 messages to ``broker.forwarding`` and everything durable to ``broker.delivery``.
"""
