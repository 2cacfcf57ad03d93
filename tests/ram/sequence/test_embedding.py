"""Token embeddings."""

import pytest
import torch

from ram.corpora.vocabulary import PADDING, START, UNKNOWN
from ram.sequence.embedding import TokenEmbedding

VOCABULARY_SIZE = 9


def test_tokens_are_rows_of_the_table_and_padding_is_zero() -> None:
    embedding = TokenEmbedding(VOCABULARY_SIZE, 16)
    table = embedding.table.weight
    assert table.shape == (VOCABULARY_SIZE, 16)
    output = embedding(torch.tensor([[5, 7, PADDING]]))
    assert torch.equal(output, torch.stack([table[5], table[7], torch.zeros(16)])[None])
    output.sum().backward()
    assert table.grad is not None
    assert table.grad.any(-1).nonzero().flatten().tolist() == [5, 7]


def test_the_expected_squared_norm_of_a_vector_is_1() -> None:
    torch.manual_seed(0)
    table = TokenEmbedding(2000, 64).table.weight
    assert table[1:].square().sum(1).mean().item() == pytest.approx(1, abs=0.02)


def test_word_dropout_replaces_tokens_by_unknown_in_training_only() -> None:
    embedding = TokenEmbedding(VOCABULARY_SIZE, 4, word_dropout=0.3)
    table, token_ids = embedding.table.weight, torch.tensor([[4, 5, 6, PADDING, START]]).expand(5000, -1)
    torch.manual_seed(0)
    table.data[UNKNOWN] = 1
    output = embedding(token_ids)
    unknown = (output == table[UNKNOWN]).all(-1)
    assert torch.equal(output[~unknown], table[token_ids[~unknown]])
    assert unknown[:, :3].float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert not unknown[:, 3:].any()
    assert torch.equal(embedding.eval()(token_ids), table[token_ids])


def test_dropout_zeroes_entries_in_training_only() -> None:
    embedding = TokenEmbedding(VOCABULARY_SIZE, 4, dropout=0.25)
    token_ids = torch.tensor([[4, 5, 6]]).expand(5000, -1)
    torch.manual_seed(0)
    output, whole = embedding(token_ids), embedding.table.weight[token_ids]
    kept = output != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(output[kept], whole[kept] / 0.75)
    assert torch.equal(embedding.eval()(token_ids), whole)
