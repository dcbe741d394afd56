"""`model.name: e5-small-zh`: multilingual-e5-small for Chinese, from a package, without a hub."""
