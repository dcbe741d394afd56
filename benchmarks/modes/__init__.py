"""The same job in every mode."""
