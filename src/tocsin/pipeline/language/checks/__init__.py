"""Checks of a statement before it is accepted: of its query (``queries``), against what there is (``statements``), and
by Spark (``spark``)."""
