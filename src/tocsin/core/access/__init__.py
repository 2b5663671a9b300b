"""Who may come in, and what they may do then: log-ins, ownership of client ids, and rules for topics and SQL.

``rules`` reads the rules file, ``rights`` answers what a user may publish or hear, ``admission`` and ``logins`` decide
who is let in and when. Pure decisions: passwords are checked and files are read elsewhere (``runtime.security``).
"""
