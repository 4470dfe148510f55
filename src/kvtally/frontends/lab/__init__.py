"""The lesson: a learner builds kv.py, and the grader counts for itself."""
