"""Several runs of one configuration: folds, seeds, a learning curve, a search; one job in every mode."""
