"""What suggest is worth: python -m benchmarks.few_labels"""
