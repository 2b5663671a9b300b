"""Keys, certificates, passwords and rules on disk: reading, checking, making and following them.

``authority`` issues the network's certificates, ``users`` checks passwords, ``files`` follows what changes, ``audit``
keeps the log of what operators did. Decisions are those of ``core.access``.
"""
