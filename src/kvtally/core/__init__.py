"""RECORDS. Frozen, standard library only."""
