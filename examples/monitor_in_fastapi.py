"""A monitor inside a FastAPI program that serves an encoder: every answer says how usual its texts are.

    frostline baseline MODEL --text normal.txt -o enc.frost
    python examples/monitor_in_fastapi.py MODEL enc.frost
    curl -s http://127.0.0.1:8000/embed -H 'Content-Type: application/json' -d '{"texts": ["The lake froze."]}'

The watch looks on while the model works and changes nothing of its answers; /health says whether its alarm rings.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field
from transformers import AutoModel, AutoTokenizer

import frostline as fl


class Texts(BaseModel):
    texts: Annotated[list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=64)]


def program(model_folder: str, baseline: str) -> FastAPI:
    """The program: a model, its tokenizer, and a watch that begins and ends with it."""
    model = AutoModel.from_pretrained(model_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    # hold=1: every call is scored at once, so that its answer can say so.
    watch = fl.watch(model, baseline, tokenizer=tokenizer, hold=1, false_alarm_every="30d")

    @asynccontextmanager
    async def watched(app: FastAPI) -> AsyncIterator[None]:
        with watch:
            yield

    app = FastAPI(title="An encoder that knows what is usual", lifespan=watched)

    # async, so that calls come one after the other: a model in use is watched pass by pass.
    @app.post("/embed")
    async def embed(call: Texts) -> dict[str, object]:
        inputs = tokenizer(call.texts, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
        present = inputs["attention_mask"][..., None]
        means = (states * present).sum(1) / present.sum(1)
        scores = watch.last
        why = [[str(reason) for reason in reasons[:1]] for reasons in scores.reasons]
        return {"embeddings": means.tolist(), "p_values": scores.p_values.tolist(), "reasons": why}

    @app.get("/health")
    async def health() -> dict[str, object]:
        return {"alarm": watch.ringing, "strange": len(watch.strange)}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("baseline")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    uvicorn.run(program(asked.model, asked.baseline), host="127.0.0.1", port=asked.port)
