"""The classifier, and the faster parts that take the place of transformers' own."""
