"""Restored classifiers and taggers."""

import io
from functools import partial
from typing import Any

import pytest
import torch

from envs import InputError
from ram.baselines import NoBaseline
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence import interfaces
from ram.sequence.classifiers import Classifier, Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.pooling import AttentionPooling, SumPooling
from ram.tasks.classify_text import ClassifyTextTask
from ram.tasks.tag import TagTask
from ram.tasks.text import TextTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, UnavailableCorpus, labelled, tagged

SIGNS = labelled("plus: one two two", "minus: three", "plus: two four one one one", "minus: three four two")
PARTS: dict[str, Any] = {"embedding": partial(TokenEmbedding, size=6), "encoder": interfaces.IdentityEncoder}


def restore(task: TextTask, model: Any, corpus: Any) -> Any:
    """Restores the trained model from a state that has been saved and loaded."""
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    arguments = {"model": model, "corpus": corpus, "device": "cpu"}
    return type(task).restore(torch.load(file, weights_only=True), arguments)


def test_restored_model_equals_the_trained_model_and_needs_no_corpus() -> None:
    model_factory = partial(Classifier, **PARTS, pooling=partial(AttentionPooling, num_queries=2), hidden_size=3)
    task = ClassifyTextTask(InMemoryCorpus(SIGNS), model_factory, NoBaseline)
    model = restore(task, model_factory, UnavailableCorpus(SIGNS))
    assert model.vocabulary.all_tokens == task.vocabulary.all_tokens
    assert model.classes == ("minus", "plus")
    assert not model.model.training
    weights = model.model.state_dict()
    assert weights.keys() == task.model.state_dict().keys()
    assert all(torch.equal(value, weights[name]) for name, value in task.model.state_dict().items())


def test_unknown_words_share_one_token_and_empty_texts_are_refused() -> None:
    tags = tagged("one/a two/b", "one/a")
    tag_task = TagTask(InMemoryCorpus(tags), partial(Tagger, **PARTS), NoBaseline)
    tagger = restore(tag_task, partial(Tagger, **PARTS), InMemoryCorpus(tags))
    model_factory = partial(Classifier, **PARTS, pooling=SumPooling)
    task = ClassifyTextTask(InMemoryCorpus(SIGNS), model_factory, NoBaseline)
    classifier = restore(task, model_factory, InMemoryCorpus(SIGNS))
    tokens, token_ids, lengths = classifier.encode(["one seven", "two", "eight eight one one"])
    assert tokens == (("one", "seven"), ("two",), ("eight", "eight", "one", "one"))
    one, two = classifier.vocabulary.encode(["one", "two"])
    assert token_ids.tolist() == [[one, UNKNOWN, 0, 0], [two, 0, 0, 0], [UNKNOWN, UNKNOWN, one, one]]
    assert lengths.tolist() == [2, 1, 4]
    first, second = classifier.predict(["seven", "eight"]).probability
    assert torch.equal(first, second)
    assert [[word for word, _ in text] for text in tagger.predict(["seven", "one two"])] == [["seven"], ["one", "two"]]
    for model in (classifier, tagger):
        with pytest.raises(InputError, match=r"^Text 1 has no words: '  '\.$"):
            model.predict(["one", "  "])
        for texts in ([], (), "one"):
            with pytest.raises(InputError, match="The model needs a list of at least one text"):
                model.predict(texts)
