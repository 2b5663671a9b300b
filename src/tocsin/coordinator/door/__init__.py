"""The coordinator's door: one address at which any client finds its broker. ``core.door`` decides.

``listener`` accepts and answers, ``proxy`` passes clients on, ``lookup`` answers over HTTP, ``view`` tells what the
coordinator knows.
"""
