"""Writing a trained model in a form that other programs can run, with a proof that it gives the same
labels."""
