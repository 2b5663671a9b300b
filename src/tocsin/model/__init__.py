"""The nouns of the network as frozen structs, and the version of every format that is stored or sent.

``network`` has brokers and addresses, ``publication`` a message, ``stream`` metadata, ``catalogue`` datasets, feeds and
channels, ``results`` and ``subjects`` the names that they have in the store. ``versions`` knows all formats. No
behaviour beyond reading, writing and comparing; imports only ``ports``, ``config`` and ``errors``.
"""
