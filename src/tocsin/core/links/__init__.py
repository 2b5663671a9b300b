"""Links between brokers: when to dial, how far others are, and ways around a link that is down.

``dialler`` keeps one outgoing link, ``incoming`` is what a link may do at the other end, ``detour`` and ``path`` find
and describe a way through other brokers, and ``distances`` measures.
"""
