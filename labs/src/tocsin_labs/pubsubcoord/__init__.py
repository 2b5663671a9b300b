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
| ``failure`` | a hub is drained, killed, frozen under that load; not in the paper |
| ``joining`` | Figure 7c: subscribers that join; ``joiners`` are brokers without clients |
| ``tables`` | paper and ours, side by side |
| ``plots`` | pictures of all of it |
| ``run`` | the experiments one after the other, and what is written down |

Not built yet: Figure 8 and Table 1 (deadlines over second ways), of which the product has nothing to measure.
"""
