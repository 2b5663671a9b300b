"""Experiments: the figures and tables of the papers, on real processes of ours, or in virtual time.

| module | what it is |
| --- | --- |
| ``command`` | the verb ``tocsin lab`` |
| ``stage`` | where results go, whom to tell how far an experiment is, when to cut it short |
| ``figures`` | spreads of what was measured, beside what a paper says, as tables |
| ``fleet`` | a network whose brokers can be killed, and stay away |
| ``chronicle`` | what the coordinators' log says of brokers, and when |
| ``optimum`` | how good a plan of backups could be |
| ``sockets``, ``meter`` | what processes say to each other over TCP, as the kernel counts it |
| ``cqbs`` | the experiments of the CQBS paper, on real processes |
| ``landmark`` | the experiments of the Landmark paper, on real processes |
| ``pubsubcoord`` | the experiments of the PubSubCoord paper, on real processes over an emulated wide-area network |
| ``reaps`` | the simulation of the REAPS paper, in virtual time; its prototype, on real processes |

Networks, load generators and the prototype's scene are those of ``tocsin_demo``.
All processes run on one machine, so that they share one clock (``time.monotonic_ns``), and its processors too.
"""
