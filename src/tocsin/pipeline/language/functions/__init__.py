"""The meaning of our functions, as text of Spark's SQL: ``library`` has all, ``geometry`` those of places.

``spaces`` are the coordinate spaces of places, ``patterns`` regular expressions that are quick whatever they meet.
"""
