"""An audit of a model of your own: a torch.nn.TransformerEncoder, through an adapter that says which weight is which.

    python examples/audit_own_model.py OUT

frostline reads encoders of families that it knows. A model with the same mathematics as one of them needs an adapter:
its weights under that family's names. The adapter is checked here against the model, and by the audit's own proof.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import frostline as fl
from frostline.encoders.corpus import sample

WIDTH, HEADS, LAYERS, LONGEST = 64, 4, 3, 64
PROJECTIONS = ("query", "key", "value")


class OwnEncoder(nn.Module):
    """A model as one writes it: words and places are added and normalised; layers have the norm after attention."""

    def __init__(self, words: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layers(self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1]))))


def as_bert(own: OwnEncoder) -> BertModel:
    """The adapter: the same model under the names of BERT."""
    bert = BertModel(
        BertConfig(
            vocab_size=own.words.num_embeddings,
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            num_hidden_layers=LAYERS,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=LONGEST,
            layer_norm_eps=own.norm.eps,
        ),
        add_pooling_layer=False,
    )
    weights = bert.state_dict()
    embeddings = {"word_embeddings": own.words, "position_embeddings": own.places, "LayerNorm": own.norm}
    named = {f"embeddings.{name}": module for name, module in embeddings.items()}
    for number, layer in enumerate(own.layers.layers):
        there = f"encoder.layer.{number}."
        attention = layer.self_attn
        for part in ("weight", "bias"):
            thirds = getattr(attention, f"in_proj_{part}").chunk(3)
            weights |= {
                f"{there}attention.self.{name}.{part}": third for name, third in zip(PROJECTIONS, thirds, strict=True)
            }
        named |= {
            f"{there}attention.output.dense": attention.out_proj,
            f"{there}attention.output.LayerNorm": layer.norm1,
            f"{there}intermediate.dense": layer.linear1,
            f"{there}output.dense": layer.linear2,
            f"{there}output.LayerNorm": layer.norm2,
        }
    for name, module in named.items():
        weights |= {f"{name}.{part}": value for part, value in module.state_dict().items()}
    # BERT adds a segment to every token, which this model does not have.
    weights["embeddings.token_type_embeddings.weight"] = torch.zeros(2, WIDTH)
    bert.load_state_dict(weights)
    return bert.eval()


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """Words of the texts as tokens, each text between two marks."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for text in texts for word in text.lower().split()})]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    plain.pre_tokenizer = Whitespace()
    plain.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def main(out: Path, most: int) -> None:
    texts = [" ".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) for text in sample()][:most]
    tokenizer = tokenizer_of(texts)
    torch.manual_seed(0)
    own = OwnEncoder(len(tokenizer)).eval()  # yours would be trained
    bert = as_bert(own)
    ids = tokenizer(texts[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        off = (own(ids) - bert(ids).last_hidden_state).abs().max().item()
    print(f"The adapter reproduces the model to {off:.1e}.")
    assert off < 1e-5
    audit = fl.audit(bert, texts, tokenizer=tokenizer, source="the sample")
    audit.save(out)
    print(audit.sentence)
    print(f"Look at {out / 'index.html'}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=320, help="the number of texts")
    main(**vars(parser.parse_args()))
