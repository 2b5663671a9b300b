"""Tiers: the routing brokers that carry for the same clusters, and which of them carries what.

    slots       1 024 parts of all topics; a topic is in one by its hash
    table       who carries each slot of a tier, and who is the deputy: the same on every replica (``SlotTable``)
    ways        at a broker: over which member a message goes now; deputies, and pauses of planned moves (``TierWays``)
    measuring   at a member: what it carries, counted by topic and told by slot
    loads       at the leader: what each member carries, from these reports
    strategies  at the leader: by what slots are placed at members (topics, rates)
    placing     at the leader: the same by the number of slots alone
    elasticity  at the leader: how many members a tier should have

Routes name tiers (``core.forwarding.routes``), and every member of a tier has the routes onward. So any member can
carry any slot at once: an assignment is about balance and never about correctness. (PubSubCoord, section 2.)
"""
