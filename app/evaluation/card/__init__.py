"""The model card of a run: what the classifier is, how good it is, and where it fails, in English and
Chinese."""
