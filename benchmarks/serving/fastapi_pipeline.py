"""The simplest server: transformers' pipeline behind FastAPI. python -m benchmarks.serving.fastapi_pipeline
FOLDER PORT"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

app = FastAPI()


class Question(BaseModel):
    """The body of a request."""

    inputs: str


@app.post("/predict")
def predict(question: Question) -> list[dict]:
    return classify([question.inputs], truncation=True)[0]


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    classify = pipeline("text-classification", model=folder, tokenizer=folder, device="cpu", top_k=None)
    uvicorn.run(app, port=int(port), log_level="error")
