"""Everything that decides, as machines and pure classes: no clock, no randomness, no socket, no task.

``machine`` is the kernel that machines share. Each room has one subject: ``machine`` (states, transitions), ``signals``
(its events and effects) and its parts; a room with several machines, or none, says so. At the root is what rooms
share: ``filters``, ``cells`` (compare-and-set), ``deadlines``, ``rates``. May import ``query``, ``wire``, ``model`` and
``ports``; time and chance come as arguments.
"""
