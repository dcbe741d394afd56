"""Evaluating rows with any number of labels: thresholds, metrics, report."""
