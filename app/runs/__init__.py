"""Several runs of one configuration: folds, seeds, a learning curve, a search, the next round; all modes."""
