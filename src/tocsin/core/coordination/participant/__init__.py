"""A broker's side of coordination: it declares what it has, follows the commands, and reports when it has applied them.

``participant`` is the machine, ``signals`` its events and effects; ``submission`` is what the broker says of itself and
tells the leader until the log has it, ``network_view`` what it knows of the others.
"""
