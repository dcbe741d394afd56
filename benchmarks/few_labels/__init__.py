"""What suggest and add-class are worth: python -m benchmarks.few_labels"""
