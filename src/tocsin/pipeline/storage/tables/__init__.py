"""Delta tables on a file system: ``delta`` opens, mends and commits, ``files`` tells what is there after a power cut.

``upkeep`` folds, merges, compacts and trims them beside their readers; ``planning`` decides when, and does nothing
itself.
"""
