"""How good the classifiers are, beside what people would use instead: python -m benchmarks.quality"""
