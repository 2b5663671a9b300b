"""Breaking a network that runs, beside a load of one's own, and the account of what that load saw.

| module | what it is |
| --- | --- |
| ``account`` | what was lost, repeated, out of order, and how long recovery took: pure |
| ``plan``, ``targets`` | what is broken when, and what its name stands for: pure |
| ``workload`` | which streams there are, and who hears them: pure |
| ``load`` | the clients of that workload |
| ``parts`` | the processes of a network, found and signalled without mistaking others for them |
| ``breaking`` | faults carried out, and healed |
| ``run`` | all of it together |
"""
