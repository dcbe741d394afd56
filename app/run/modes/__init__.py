"""The same job in every mode, each in its own processes: is it equal, and how fast is it."""
