"""The experiments of the PubSubCoord paper (section 3), on real processes over an emulated wide-area network.

| module | what it is |
| --- | --- |
| ``plan`` | the parameters: the paper's, and those of a quick form |
| ``paper`` | what the paper, or its plot scripts, found |
| ``site`` | what is measured of brokers, whosever they are |
| ``wan`` | our network: edge brokers in LANs, routing brokers in a cloud, delays between them |
| ``peer`` | the same with NATS servers; ``proxy`` delays what they say to each other |
| ``crowd`` | the load: a publisher and a subscriber for each topic; ``speech`` has its bytes |
| ``locality`` | Figure 6: latency by the share of topics that stay in their LAN |
| ``topics`` | Figures 7a and 7d: ever more topics, and what a message costs (``costs``) |
| ``hubs`` | Figures 7b and 7e: ever more routing brokers, each held to a share of a processor (``quota``) |
| ``virtual`` | both for the paper's 160 brokers, in virtual time |
| ``joining`` | Figure 7c: subscribers that join; ``joiners`` are brokers without clients |
| ``deadline`` | Figure 8 and Table 1: paths with delay and loss |
| ``overlay`` | its network: pairs of edge brokers and a routing broker in namespaces of their own (``places``) |
| ``router`` | moves their packets, with delay and loss |
| ``failure`` | all slots move; a hub is drained, killed, frozen under Figure 6's load; not in the paper |
| ``tables``, ``claims`` | paper and ours, side by side; what the paper says in words |
| ``plots`` | pictures of all of it |
| ``run`` | the experiments one after the other, and what is written down |
"""
