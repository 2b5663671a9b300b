"""Where connections come in: listeners, TLS, WebSocket, log-ins, and redirects to other brokers.

``listener`` accepts sockets and makes connections, ``clients`` is the register of connected clients, ``authentication``
asks ``core.access`` and checks passwords, ``ownership`` finds the owner of a client id, ``redirects`` names other
servers to clients, ``registrar`` answers those who make accounts. From CONNACK on a client belongs to
``broker.connection``.
"""
