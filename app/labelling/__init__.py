"""Labelling a pool of texts with a model in the loop: which text comes next, what is known so far, and the
file of answers."""
