"""Writing a trained model in a form that other programs can run, with a proof of the same labels."""
