"""Access: clients' log-ins, the ownership of client ids, and the rules for topics and SQL.

``rules`` reads the rules file, ``rights`` says which topics a user may publish and receive, ``admission`` and
``logins`` decide which clients are admitted and when. The one machine is ``registration``: who gets an account
(``accounts``). Everything else is pure decisions: passwords are checked and files are read elsewhere
(``runtime.security``).
"""
