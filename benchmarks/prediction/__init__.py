"""Classifying texts, and evaluating a split: this project against transformers' pipeline at its best."""

OURS = ("predict", "evaluate")
PEER = "pipeline"
