"""Tiers: the routing brokers that carry for the same clusters, and which of them carries what.

    slots    1 024 parts of all topics; a topic is in one by its hash
    table    who carries each slot of a tier, and who is the deputy: the same on every replica (``SlotTable``)
    placing  which slots to move, so that members carry alike (the leader's; pure)
    ways     at a broker: over which member a message goes now; deputies, and pauses of planned moves (``TierWays``)

Routes name tiers (``core.forwarding.routes``), and every member of a tier has the routes onward. So any member can
carry any slot at once: an assignment is about balance and never about correctness. (PubSubCoord, section 2.)
"""
