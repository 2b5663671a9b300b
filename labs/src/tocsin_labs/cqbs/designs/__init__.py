"""VI-B: designs that the paper only considers, and one that it has, beside Tocsin's, under the load of V-B.

- ``logged``, Tocsin's own: a change goes to the leader, and is on disk before anybody hears of it.
- ``ahead``, consensus off the hot path: the leader tells brokers and other coordinators at once, and the log is written
  behind. A leader that fails loses what it told and had not written.
- ``broadcast``, no coordinator: a broker tells all others, and each holds the change against its own queries. Nobody
  notices what a broker did not hear.
- ``unshared``, each subscriber with its own query at the coordinator, as in the paper (IV-B): a broker that has several
  who ask the same asks for each of them. Its load, and that of ``logged`` beside it, has few different queries.

Brokers and coordinators of every design are in one process, on a real bus of NATS, so that their processor time can be
compared. All but ``broadcast`` run the coordinator and the brokers' participants as they ship; of ``ahead`` only the
log is another (``ahead``), of ``unshared`` only the ids under which brokers ask (``dummies``). The brokers of
``broadcast`` are its own, on the production's index of queries.
"""
