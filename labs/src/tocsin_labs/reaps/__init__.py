"""The REAPS paper's experiments: its simulation (section VI.B), in virtual time and with the product's own cores; and
its prototype (VI.A), on real processes.

| module | what it is |
| --- | --- |
| ``parameters`` | the paper's numbers, what it leaves open, and a quick form |
| ``paper`` | what the paper says was found |
| ``workload`` | brokers, subscribers, channels and sizes of results, drawn from a seed |
| ``backend`` | the executions of all channels, as events |
| ``retrieval`` | Fig 4a: what brokers fetch, with quasi-active and with active replication |
| ``overheads`` | Figs 4b and 4c: subscriptions that backups cost (``core.assignment``) |
| ``replicas`` | ``Primary`` and ``Backup`` (``core.replication``) of many brokers, in virtual time |
| ``replication`` | Fig 4d: messages against duplicates |
| ``failures`` | Figs 5a and 5b: who stands in for whom (``core.coordination.state.backups``), and what is said twice |
| ``takeover`` | until everybody has what it missed: ``SessionTaking`` and ``ChannelHoldings`` in virtual time |
| ``rates``, ``measuring`` | the costs that takeovers are timed by, and how they are measured on real processes |
| ``claims`` | the paper's statements without numbers, held against ours |
| ``plots``, ``run`` | pictures; all of it, and what is written down |
| ``prototype`` | Figs 3a and 3b, measured on the scene that ``tocsin demo`` plays (``tocsin_demo.scene``) |
"""
