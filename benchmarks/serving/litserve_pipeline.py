"""transformers' pipeline behind LitServe, which batches: python -m benchmarks.serving.litserve_pipeline
FOLDER PORT"""

import sys

import litserve


class Classifier(litserve.LitAPI):
    """The model in `folder`, computed in batches of what waits."""

    def __init__(self, folder: str) -> None:
        super().__init__(max_batch_size=32, batch_timeout=0.003)
        self.folder = folder

    def setup(self, device: str) -> None:
        from transformers import pipeline

        model = {"model": self.folder, "tokenizer": self.folder}
        self.classify = pipeline("text-classification", device="cpu", top_k=None, **model)

    def decode_request(self, request: dict) -> str:
        return request["inputs"]

    def predict(self, texts: list[str]) -> list[list[dict]]:
        return self.classify(texts, batch_size=len(texts), truncation=True)


if __name__ == "__main__":
    server = litserve.LitServer(Classifier(sys.argv[1]), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="error")
