"""QoS 0: which local clients and which other brokers get a topic's messages.

``table`` looks a topic up and remembers the answer, ``routes`` are those that the coordinator gave, ``overlay`` puts
them together with others, and says where those of lost brokers lead. This is the hot path: nothing here is created for
a message. No machine: tables. ``tallies`` count the bytes of messages by subscription, and ``rates`` makes data rates
of the counts.
"""
