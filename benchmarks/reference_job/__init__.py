"""The reference job, trained by this project and by what people use instead: one file for each program.

Each is written as its own users would write it, around the same `Job`, with one more line:
`meter.step_done(loss)`.
"""

OURS = "ours"
PEERS = ("example_repository", "accelerate_example", "trainer_default", "trainer_tuned", "lightning_fabric")
