"""Several runs of one configuration, one after the other: the folds of a cross-validation, or seeds."""
