"""Labels and logits -> figures: probabilities, how well they are calibrated, and how sure a figure is."""
