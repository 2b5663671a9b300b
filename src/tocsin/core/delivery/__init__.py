"""Everything above QoS 0 for one client: reading the log, the window of unacknowledged messages, and its stored
session.

``machine`` is one client's delivery, fed from several *tracks* (messages, critical messages, results); ``window`` hands
out packet ids; ``taking`` makes a session this broker's, ``session_cell`` writes it with compare-and-set.
``group_commit`` batches what publishers hand in. The room reads and writes the store through effects only.
"""
