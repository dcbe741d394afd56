"""The rows of each step, and the tensors of a batch."""
