"""Encoders whose weights are chosen: one BERT head per layer, no feed-forward effect, norms that only normalise."""

import numpy as np
import torch
import transformers
from scipy.linalg import null_space

from frostline.encoders.tokenization import Tokenized


def zero_mean_basis(d):
    """Orthonormal columns spanning the vectors of mean zero."""
    return null_space(np.ones((1, d)))


def bert(logits, values, *, layers, vocabulary=400, heads=1, seed=0):
    """B = ``logits`` and V = ``values`` on the unit sphere of the zero-mean space, d = len + 1; one head."""
    m = len(logits)
    d = m + 1
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        hidden_size=d,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4,
        vocab_size=vocabulary,
        max_position_embeddings=vocabulary,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    basis = zero_mean_basis(d)
    # Logits are (W_Q x)·(W_K x)/√d with x = √d·u: uᵀBv needs W_QᵀW_K = B/√d.
    query = basis @ np.asarray(logits, dtype=float).T @ basis.T / np.sqrt(d)
    value = basis @ np.asarray(values, dtype=float) @ basis.T
    with torch.no_grad():
        for name, part in model.named_parameters():
            part.zero_()
            if name.endswith("LayerNorm.weight"):
                part.fill_(1.0)
        draws = np.random.default_rng(seed).standard_normal((vocabulary, m)) @ basis.T
        model.embeddings.word_embeddings.weight.copy_(torch.from_numpy(draws))
        for layer in model.encoder.layer:
            own = layer.attention.self
            own.query.weight.copy_(torch.from_numpy(query))
            own.key.weight.copy_(torch.eye(d))
            own.value.weight.copy_(torch.eye(d))
            layer.attention.output.dense.weight.copy_(torch.from_numpy(value))
    return model


def everything(vocabulary=400):
    """One text of all tokens there are."""
    return Tokenized((tuple(range(vocabulary)),), 0, 0, 0)
