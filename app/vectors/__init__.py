"""Vectors of texts; and the names of strategies.py, for a help text that does without NumPy."""

STRATEGIES = ("random", "least_confidence", "breaking_ties", "embedding_kmeans", "highest_confidence")
