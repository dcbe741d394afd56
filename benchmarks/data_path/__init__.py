"""How the data path scales: from a file of ten million rows to batches, without a model."""
