"""Labels and logits -> figures: probabilities of each row, how well they are calibrated, and how sure a
figure is."""
