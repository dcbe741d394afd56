"""Answering requests over HTTP with a saved model."""
