"""Rows and logits -> figures and the report."""
