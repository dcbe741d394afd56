"""Vectors of texts, by which texts are like each other."""

# Of app/vectors/strategies.py, for a help text that does without NumPy
STRATEGIES = ("random", "least_confidence", "breaking_ties", "embedding_kmeans", "highest_confidence")
