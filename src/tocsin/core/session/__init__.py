"""One MQTT connection, from CONNECT to its end: the handshake, the order of packets, subscribing, and the will.

``machine`` decides what each packet means and what is answered; ``signals`` are its events and effects. ``publish`` has
the topics and packet ids of what the client publishes, ``subscribe`` what it asks for. The room knows MQTT packets and
nothing of the store, other brokers or sockets. What happens to a message once it is accepted is the business of
``core.forwarding`` (QoS 0) and ``core.delivery`` (above).
"""
