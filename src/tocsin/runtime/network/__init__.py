"""A network on one machine: what ``tocsin up`` starts, where its files and ports are, and how it ends.

``plan`` says which processes there are, ``supervisor`` runs ``core.supervision`` over them, ``ports`` chooses
addresses, ``leash`` ends children with their parent, ``backup`` copies and restores a whole network.
"""
