"""Trains BERT-family classifiers on Chinese text; `docs/architecture.md` shows the way of the data."""
