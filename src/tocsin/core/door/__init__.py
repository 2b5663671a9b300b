"""The coordinators' door: which broker a client belongs to, and how it gets there from one address.

No machine: ``choice`` picks a broker, ``callers`` remembers who was here before, ``waiting`` who waits for room, and
``door`` puts them together into the answer for one client. Pure, with the time as an argument. ``coordinator.door`` is
the shell: listeners, the proxy and the HTTP look-up.
"""
