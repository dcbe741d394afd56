"""Servers of the same model under load: this project's, transformers' pipeline behind FastAPI,
and LitServe."""
