"""The machine itself: what it has (``measure``, ``control_groups``), how fit it is to be a coordinator (``score``,
``criteria``), and giving memory back to it (``allocator``).
"""
