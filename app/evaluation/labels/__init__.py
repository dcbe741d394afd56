"""Which labels are wrong: a ranking from out-of-fold logits, and a measurement of how good this ranking is."""
