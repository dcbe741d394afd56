"""Which rows train when, and the tensors of a batch."""
