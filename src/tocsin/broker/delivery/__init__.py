"""Durable delivery: the message log, stored sessions, and every client's delivery from them.

``message_log`` appends and follows, ``session_lifecycle`` is one client's way in and out, ``session_store`` takes and
keeps sessions, ``client_delivery`` runs ``core.delivery`` for one client, ``announcements`` tells other brokers of
arrivals, ``wills`` publishes clients' wills. Talks to the store through ports.
"""
