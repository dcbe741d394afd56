"""Labels and logits -> metrics, the printed report and the file of predictions."""
