"""`model.name: e5-small-zh`: multilingual-e5-small for Chinese, out of a package of the package index,
without a hub."""
