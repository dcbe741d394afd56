"""What a run shows and keeps while it trains: log lines, progress bar, TensorBoard, metrics.jsonl."""
