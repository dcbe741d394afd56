"""The training loop and what a step needs."""
