"""The simplest server: transformers' pipeline behind FastAPI. python -m benchmarks.serving.fastapi_pipeline
FOLDER PORT"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Question(BaseModel):
    """The body of a request."""

    inputs: str


def main(folder: str, port: str) -> None:
    """Serve the model in `folder` until killed."""
    classify = pipeline("text-classification", model=folder, tokenizer=folder, device="cpu", top_k=None)
    app = FastAPI()

    @app.post("/predict")
    def predict(question: Question) -> list[dict]:
        return classify([question.inputs], truncation=True)[0]

    uvicorn.run(app, port=int(port), log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:])
