"""Access: clients' log-ins, the ownership of client ids, and the rules for topics and SQL.

``rules`` reads the rules file, ``rights`` says which topics a user may publish and receive, ``admission`` decides
which clients are admitted, and in which order when many come at once, and ``logins`` which password is checked next.
The one machine is ``registration``: who gets an account (``accounts``). Everything else is pure decisions: passwords
are checked and files are read elsewhere (``runtime.security``).
"""
