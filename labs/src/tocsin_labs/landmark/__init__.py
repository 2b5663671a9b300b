"""The experiments of the Landmark paper (section 5), on real processes, and beyond these in virtual time.

| module | what it is |
| --- | --- |
| ``plan`` | the parameters: the paper's, and those of a quick form |
| ``paper`` | what the paper found |
| ``crowd`` | subscribers, publishers, and what became of their messages |
| ``control`` | Table 1: what flows while nothing happens |
| ``objects`` | Tables 2 and 3: what flows because a broker fails |
| ``latency`` | Table 4: when all is well again after 1 to 5 brokers failed at once |
| ``bandwidth`` | Table 4 over a network that carries less, or something else as well |
| ``sequence`` | Figure 8: each message of a publisher, while its subscriber's broker fails |
| ``simulated`` | a network in virtual time: the machines that decide, and no processes |
| ``watch`` | what becomes of brokers that are killed in it |
| ``scale`` | Tables 1 and 4 with up to a thousand brokers of that kind |
| ``tables`` | paper and ours, side by side |
| ``plots`` | pictures of all of it |
| ``run`` | the experiments one after the other, and what is written down |
"""
