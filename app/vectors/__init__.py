"""Vectors of texts, by which texts are like each other."""
