"""What a task decides: its loss. The training loop knows no task by name."""
