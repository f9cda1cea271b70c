"""Which weights of a model family play which part: one declaration per family, nothing computed.

Names are those of the tensors in the file, without the model's own prefix ("bert.", "roberta."); a layer's are under
``layer``. The modules of a loaded model have the same names.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One architecture.

    norm            "post": x ← N(x + attention(x)); "pre": x ← x + attention(N(x))
    entry_norm      the norm before the first layer
    attention_norm  post: the norm after attention; pre: the one before it
    output_norm     post: the norm after the feed-forward half
    entry_map       a linear map between ``entry_norm`` and the first layer, where the model may have one
    positions       "added" to the tokens, or inside attention, where they cannot be folded: "relative", "rotary"
    shared          the same weights in every layer
    """

    name: str
    model_types: tuple[str, ...]
    model_class: str
    layer: str
    query: str
    key: str
    value: str
    output: str
    norm: Literal["post", "pre"]
    entry_norm: str
    attention_norm: str
    output_norm: str
    entry_map: str | None = None
    positions: Literal["added", "relative", "rotary"] = "added"
    shared: bool = False


_BERT_LAYER = {
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "entry_norm": "embeddings.LayerNorm",
    "attention_norm": "attention.output.LayerNorm",
    "output_norm": "output.LayerNorm",
}

FAMILIES = (
    Family("BERT", ("bert",), "BertModel", norm="post", **_BERT_LAYER),  # type: ignore[arg-type]
    Family("RoBERTa", ("roberta",), "RobertaModel", norm="post", **_BERT_LAYER),  # type: ignore[arg-type]
    Family("XLM-RoBERTa", ("xlm-roberta",), "XLMRobertaModel", norm="post", **_BERT_LAYER),  # type: ignore[arg-type]
    Family("CamemBERT", ("camembert",), "CamembertModel", norm="post", **_BERT_LAYER),  # type: ignore[arg-type]
    Family(
        "DistilBERT",
        ("distilbert",),
        "DistilBertModel",
        layer="transformer.layer.{}.",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        norm="post",
        entry_norm="embeddings.LayerNorm",
        attention_norm="sa_layer_norm",
        output_norm="output_layer_norm",
    ),
    Family(
        "ALBERT",
        ("albert",),
        "AlbertModel",
        layer="encoder.albert_layer_groups.0.albert_layers.0.",
        query="attention.query",
        key="attention.key",
        value="attention.value",
        output="attention.dense",
        norm="post",
        entry_norm="embeddings.LayerNorm",
        entry_map="encoder.embedding_hidden_mapping_in",
        attention_norm="attention.LayerNorm",
        output_norm="full_layer_layer_norm",
        shared=True,
    ),
    Family(
        "ELECTRA",
        ("electra",),
        "ElectraModel",
        norm="post",
        entry_map="embeddings_project",
        **_BERT_LAYER,  # type: ignore[arg-type]
    ),
    Family(
        "MPNet",
        ("mpnet",),
        "MPNetModel",
        layer="encoder.layer.{}.",
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        output="attention.attn.o",
        norm="post",
        entry_norm="embeddings.LayerNorm",
        attention_norm="attention.LayerNorm",
        output_norm="output.LayerNorm",
        positions="relative",
    ),
)

SUPPORTED = ", ".join(family.name for family in FAMILIES)
