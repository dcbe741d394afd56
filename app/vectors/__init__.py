"""Vectors of texts, by which texts are like each other."""

# Of app/vectors/strategies.py, for a help text that does without NumPy
STRATEGIES = (
    *("random", "least_confidence", "prediction_entropy", "breaking_ties"),
    *("embedding_kmeans", "greedy_coreset", "highest_confidence"),
)
