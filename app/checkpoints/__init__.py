"""What a run keeps on disk: training states, and its folder."""
