"""Language models with given transition probabilities."""

import math
from functools import partial

import torch
from torch import Tensor

from ram.corpora.vocabulary import END, START
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import IdentityEncoder

A, B, C = range(END + 1, END + 4)
TRANSITIONS = {  # of every token, the probabilities of the next one
    START: {A: 0.5, B: 0.3, END: 0.2},
    A: {B: 0.6, C: 0.4},
    B: {C: 0.7, END: 0.3},
    C: {END: 0.9, A: 0.1},
}


def make_markov_model(following: dict[int, dict[int, float]]) -> LanguageModel:
    """A language model with given probabilities of the next token, which depend on the previous token only."""
    model = LanguageModel(C + 1, partial(TokenEmbedding, size=C + 1), IdentityEncoder).eval()
    model.out.weight.data, model.out.bias.data = torch.eye(C + 1), torch.zeros(C + 1)
    model.embedding.table.weight.data.fill_(-1e9)
    for token, probabilities in following.items():
        for after, probability in probabilities.items():
            model.embedding.table.weight.data[token, after] = math.log(probability)
    return model


def make_prefix(*prompts: list[int]) -> Tensor:
    return torch.tensor([[START, *prompt] for prompt in prompts])


def make_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
