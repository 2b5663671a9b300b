"""The survival of brokers, regions and coordinators that fail: detection, takeover, clusters that are cut off.

``detection`` judges silence and closed links, ``landmark`` runs a cluster that is cut off, ``takeover`` stands in for a
lost broker with the copy that ``core.replication`` keeps, ``wills`` are those that wait, ``provisional`` serves clients
without the store, and ``homes`` and ``refuges`` say where clients belong and where they could go.

Machines: ``announcements``, ``covering``, ``landmark`` (its signals in ``landmark_signals``), ``provisional``,
``takeover``, ``wills``. They share no state, so that each is read by itself; the others are pure classes that machines
and brokers ask.
"""
