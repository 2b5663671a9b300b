"""A broker's side of coordination: it declares what it has, follows the commands, and reports when it has applied them.

``participant`` is the machine, ``signals`` its events and effects; ``declared`` is what the broker has said of itself,
``network_view`` what it knows of the others, ``submission`` what it tells the leader until the log has it.
"""
