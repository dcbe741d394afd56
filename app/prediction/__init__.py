"""Classifying text with a finished checkpoint."""
