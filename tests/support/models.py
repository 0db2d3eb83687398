"""Models for tests: where real ones are kept, and tiny ones made on the spot."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "how", "to", "stop", "a", "command", "after", "timeout", "run", "b", "c")


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """Where the real models of the tests are unpacked; kept between runs, like a user's."""
    return Path(__file__).parents[2] / ".strata" / "models"


def word_tokenizer() -> Tokenizer:
    """One token a word, with [CLS] and [SEP] around."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))],
    )
    return tokenizer


def save_tiny_bert(folder: Path, kind: str = "encoder", labels: int = 1) -> Path:
    """A BERT of random weights with its tokenizer, in Hugging Face's layout; ``kind`` is encoder or classifier."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        # Large enough for different pairs to get scores that differ.
        initializer_range=0.6,
        num_labels=labels,
    )
    model = BertModel(config) if kind == "encoder" else BertForSequenceClassification(config)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)
    return folder
