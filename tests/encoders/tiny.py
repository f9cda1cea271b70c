"""Tiny encoders with random weights, saved as transformers saves them, and a tokenizer of a few words."""

import json

import torch
import transformers

PROSE = "the a frost line ground water ice token cloud layer head freezes moves melts sees is of in below and"
WORDS = PROSE.split()
LETTERS = [*map(chr, range(33, 127)), *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789")]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "the frost line is below the ground",
    "a token moves and a cloud freezes",
    "ice melts in water",
    "the head of a layer sees the ice and the water and the ground below",
]
SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
PICTURE = {"image_size": 16, "patch_size": 4}
COMMON = SIZE | {"vocab_size": 40, "max_position_embeddings": 64, "pad_token_id": 0}


def config(family):
    t = transformers
    return {
        "BERT": lambda: t.BertConfig(**COMMON),
        "RoBERTa": lambda: t.RobertaConfig(**COMMON | {"pad_token_id": 1}),
        "XLM-RoBERTa": lambda: t.XLMRobertaConfig(**COMMON | {"pad_token_id": 1}),
        "CamemBERT": lambda: t.CamembertConfig(**COMMON | {"pad_token_id": 1}),
        "DistilBERT": lambda: t.DistilBertConfig(
            dim=32, n_layers=3, n_heads=4, hidden_dim=48, vocab_size=40, max_position_embeddings=64
        ),
        "ALBERT": lambda: t.AlbertConfig(**COMMON, embedding_size=16),
        "ELECTRA": lambda: t.ElectraConfig(**COMMON, embedding_size=16),
        "MPNet": lambda: t.MPNetConfig(**COMMON | {"pad_token_id": 1}),
        "ModernBERT": lambda: t.ModernBertConfig(
            **COMMON,
            local_attention=8,
            global_attn_every_n_layers=2,
            norm_bias=True,
            attention_bias=True,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
        ),
        "ESM": lambda: t.EsmConfig(**COMMON, position_embedding_type="rotary", token_dropout=True, mask_token_id=4),
        "ViT": lambda: t.ViTConfig(**SIZE | PICTURE),
        "DeiT": lambda: t.DeiTConfig(**SIZE | PICTURE),
        "DINOv2": lambda: t.Dinov2Config(**SIZE | PICTURE),
    }[family]()


def model(family, *, seed=0, spread=0.25, settings=None):
    """A model whose attention is not flat: weights of this standard deviation, norms and biases of their own."""
    torch.manual_seed(seed)
    settings = settings or config(family)
    made = getattr(transformers, type(settings).__name__.replace("Config", "Model"))(settings).eval()
    with torch.no_grad():
        for name, part in made.named_parameters():
            norm = "norm" in name.lower()
            part.copy_(torch.randn_like(part) * spread + (1.0 if norm and name.endswith("weight") else 0.0))
    return made


def literate():
    """Settings of a BERT that has a token for every letter: saved with ``letters`` it reads any English text."""
    found = config("BERT")
    found.vocab_size = len(SPECIAL + WORDS + LETTERS)
    return found


def save(made, folder, *, tokenizer=True, letters=False):
    made.save_pretrained(folder)
    if tokenizer:
        # No word twice: "a" is a letter too.
        known = dict.fromkeys(SPECIAL + WORDS + (LETTERS if letters else []))
        (folder / "vocab.txt").write_text("\n".join(known))
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if made.config.model_type == "modernbert":  # which has no tokenizer made from a list of words
            transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder
