"""How good a candidate is: as a backup, or to take a broker's place (Landmark, 4.2).

``scoring`` has the paper's equations over resources, ``ranking`` one score for all candidates with its terms,
``standbys`` which standby takes a lost broker's place. No numpy: every process may import it.
"""
