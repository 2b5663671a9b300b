"""The experiments of the CQBS paper (section V), and the designs that it only considers (VI-B), on real processes.

| module | what it is |
| --- | --- |
| ``plan`` | the parameters: the paper's, and smaller ones |
| ``paper`` | what the paper found |
| ``single`` | V-A: one broker with 1, 10 and 100 subscribers |
| ``coordinator`` | V-B: the coordinator alone, and with replicas whose leader is killed |
| ``whole`` | V-C: brokers and coordinators, publishers that cycle among the subscribers |
| ``crowd``, ``forwarding`` | the clients of V-A and V-C: the processes that they are, and how those are run |
| ``dummies`` | the brokers without clients of V-B, a process |
| ``designs`` | VI-B: consensus off the hot path, no coordinator, queries that are not shared, beside Tocsin's own |
| ``changes`` | what those say and ask, and whether all of it was heard |
| ``original`` | a client of the paper's own broker, for V-A |
| ``claims`` | whether the paper's statements hold |
| ``plots`` | pictures, with the paper's values drawn in |
| ``run`` | all of it, and what is written down |
"""
