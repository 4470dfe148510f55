"""ANSWERS FROM RECORDS. Standard library only."""
