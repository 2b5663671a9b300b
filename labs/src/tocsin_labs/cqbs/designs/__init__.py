"""VI-B: two designs that the paper only considers, beside Tocsin's, under the load of V-B.

- ``logged``, Tocsin's own: a change goes to the leader, and is on disk before anybody hears of it.
- ``ahead``, consensus off the hot path: the leader tells brokers and other coordinators at once, and the log is written
  behind. A leader that fails loses what it told and had not written.
- ``broadcast``, no coordinator: a broker tells all others, and each holds the change against its own queries. Nobody
  notices what a broker did not hear.

Brokers and coordinators of every design are in one process, on a real bus of NATS, so that their processor time can be
compared. The first two run the coordinator and the brokers' participants as they ship; of ``ahead`` only the log is
another (``ahead``). The third has brokers of its own (``broadcast``) on the production's index of queries.
"""
