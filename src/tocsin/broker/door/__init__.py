"""Where connections come in: listeners, TLS, WebSocket, log-ins, and redirects to other brokers.

``listener`` accepts sockets and makes connections, ``clients`` is the register of who is in, ``authentication`` asks
``core.access`` and checks passwords, ``ownership`` finds out whose a client id is,
``redirects`` tells clients where else they could go. From CONNACK on a client belongs to ``broker.connection``.
"""
