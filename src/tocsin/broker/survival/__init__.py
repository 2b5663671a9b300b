"""A broker's part in surviving: copies for and of other brokers, takeover, and service while it is cut off.

``replication`` runs ``core.replication`` both ways, ``client_state`` is what is copied, ``takeover`` stands in for a
lost broker, ``isolation`` serves a cluster that is cut off, ``provisional`` a client while the store is. ``summary``
tells the planner of backups what the broker holds, and ``rates`` what that brings.
"""
