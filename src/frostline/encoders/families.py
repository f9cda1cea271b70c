"""Families of encoders: for each, one declaration of the modules that play the parts of the theory.

Names are those of a loaded model's modules, without its own prefix ("bert.", "roberta."); a layer's are under
``layer``. Files may name tensors otherwise: ``renamed``.
"""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """One architecture.

    query, key, value  modules; "name/1" is the second third of the rows of a fused one
    entry_norm         the norm before the first layer, where there is one
    entry_map          a linear map between ``entry_norm`` and the first layer, where the model may have one
    output_norm        post-norm, x ← N(x + attention(x)): the norm at the end of a layer
    attention_norm     pre-norm, x ← x + attention(N(x)): the norm in front of attention
    final_norm         pre-norm: the norm after the last layer
    epsilon            pre-norm: the setting that holds the norms' epsilon, and what it is when not set
    layer_scale        a factor for each coordinate of what attention adds
    positions          "added" to the tokens, or inside attention, where they cannot be folded: "relative", "rotary";
                       "configured": "rotary" or "added", as the setting position_embedding_type says
    rotary             the module that knows the angles
    window             the setting that holds the width of local layers' windows, and what it is when not set
    shared             the same weights in every layer
    renamed            parts of names in older files, and what they are called here, in the order of replacing
    """

    name: str
    model_types: tuple[str, ...]
    model_class: str
    layer: str
    query: str
    key: str
    value: str
    output: str
    entry_norm: str | None = None
    entry_map: str | None = None
    output_norm: str = ""
    attention_norm: str | None = None
    final_norm: str = ""
    epsilon: tuple[str, float] = ("layer_norm_eps", 1e-12)
    layer_scale: str | None = None
    positions: Literal["added", "relative", "rotary", "configured"] = "added"
    rotary: str | None = None
    window: tuple[str, int] | None = None
    reads: Literal["text", "images"] = "text"
    shared: bool = False
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def pre_norm(self) -> bool:
        """Whether the norm is in front of attention."""
        return self.attention_norm is not None


def split_part(part: str) -> tuple[str, int | None]:
    """The module of a part, and which third of its rows; None where it is no fused module.

    >>> split_part("attn.Wqkv/1")
    ('attn.Wqkv', 1)
    """
    module, fused, third = part.partition("/")
    return module, int(third) if fused else None


def third_of(rows: Any, part: str) -> Any:
    """The rows that this part has of a module's weight or bias: a third of a fused one, else all."""
    _, third = split_part(part)
    size = len(rows) // 3
    return rows if third is None else rows[third * size : (third + 1) * size]


_BERT_ATTENTION: dict[str, Any] = {
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
}
_BERT: dict[str, Any] = _BERT_ATTENTION | {"entry_norm": "embeddings.LayerNorm", "output_norm": "output.LayerNorm"}
_VISION: dict[str, Any] = {
    "query": "attention.q_proj",
    "key": "attention.k_proj",
    "value": "attention.v_proj",
    "output": "attention.o_proj",
    "final_norm": "layernorm",
    "reads": "images",
}
_OLD_VISION = (
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
)
_OLD_VIT = (
    ("encoder.layer.", "layers."),
    *_OLD_VISION,
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
_VIT: dict[str, Any] = _VISION | {
    "layer": "layers.{}.",
    "attention_norm": "layernorm_before",
    "renamed": _OLD_VIT,
}

FAMILIES = (
    Family("BERT", ("bert",), "BertModel", **_BERT),
    Family("RoBERTa", ("roberta",), "RobertaModel", **_BERT),
    Family("XLM-RoBERTa", ("xlm-roberta",), "XLMRobertaModel", **_BERT),
    Family("CamemBERT", ("camembert",), "CamembertModel", **_BERT),
    Family(
        "DistilBERT",
        ("distilbert",),
        "DistilBertModel",
        layer="transformer.layer.{}.",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        entry_norm="embeddings.LayerNorm",
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
        entry_norm="embeddings.LayerNorm",
        entry_map="encoder.embedding_hidden_mapping_in",
        output_norm="full_layer_layer_norm",
        shared=True,
    ),
    Family("ELECTRA", ("electra",), "ElectraModel", entry_map="embeddings_project", **_BERT),
    Family(
        "MPNet",
        ("mpnet",),
        "MPNetModel",
        layer="encoder.layer.{}.",
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        output="attention.attn.o",
        entry_norm="embeddings.LayerNorm",
        output_norm="output.LayerNorm",
        positions="relative",
    ),
    Family(
        "ModernBERT",
        ("modernbert",),
        "ModernBertModel",
        layer="layers.{}.",
        query="attn.Wqkv/0",
        key="attn.Wqkv/1",
        value="attn.Wqkv/2",
        output="attn.Wo",
        entry_norm="embeddings.norm",
        attention_norm="attn_norm",
        final_norm="final_norm",
        epsilon=("norm_eps", 1e-5),
        positions="rotary",
        rotary="rotary_emb",
        window=("local_attention", 128),
    ),
    Family(
        "ESM",
        ("esm",),
        "EsmModel",
        **_BERT_ATTENTION,
        attention_norm="attention.LayerNorm",
        final_norm="encoder.emb_layer_norm_after",
        positions="configured",
        rotary="rotary_embeddings",
    ),
    Family("ViT", ("vit",), "ViTModel", **_VIT),
    Family("DeiT", ("deit",), "DeiTModel", **_VIT),
    Family(
        "DINOv2",
        ("dinov2",),
        "Dinov2Model",
        **_VISION,
        layer="encoder.layer.{}.",
        attention_norm="norm1",
        epsilon=("layer_norm_eps", 1e-6),
        layer_scale="layer_scale1",
        renamed=(*_OLD_VISION, (".lambda1", ".weight")),
    ),
)
"""Every family that is supported."""
SUPPORTED = ", ".join(family.name for family in FAMILIES)
"""Their names, for messages."""
