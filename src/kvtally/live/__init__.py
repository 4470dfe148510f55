"""ANSWERS FROM A REAL MODEL. The only folder that imports torch."""
