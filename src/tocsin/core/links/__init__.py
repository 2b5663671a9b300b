"""Links between brokers: when to dial, how far others are, and ways around a link that is down.

Four machines, all on one connection: ``dialler`` (whoever dials), ``incoming`` (the other end), ``prober`` (delay and
rate to others) and ``watch`` (a client's second connection); ``signals`` has the events and effects of the dialler.

``dialler`` keeps one outgoing link, ``incoming`` is what a link may do at the other end, ``detour`` and ``path`` find
and describe a way through other brokers, ``backlog`` keeps the messages that wait for a link, and ``distances`` has
how far brokers are from each other.
"""
