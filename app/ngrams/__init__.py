"""A linear model of the character n-grams of texts: how it is fitted, and what it answers."""
