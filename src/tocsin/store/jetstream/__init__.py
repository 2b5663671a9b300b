"""``ports.Store`` on NATS JetStream: ``store`` opens it, and has a ``log``, a ``table`` and the ``bus``.

``stream`` is what logs and tables share, ``follower`` follows one, ``append`` and ``writes`` write exactly once
(``lots`` says which writes go together), ``reads`` is the connection of direct gets, ``verdict`` makes the server's
error codes ours, ``snapshots`` makes a stream a file and back. Sockets are in ``nats``.
"""
