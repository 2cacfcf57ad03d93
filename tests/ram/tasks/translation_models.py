"""Small translation tasks, some with weights set by hand, for the tests of translation."""

import io
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ram.attention.selection import Hard
from ram.baselines import NoBaseline
from ram.corpora import Examples
from ram.corpora.vocabulary import END, START, UNKNOWN, Vocabulary
from ram.inference.translation import TextTranslator
from ram.sequence import interfaces
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.recurrent import RecurrentDecoder, RecurrentEncoder
from ram.sequence.search import Search
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder, Seq2SeqModel
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder
from ram.tasks.translate import TranslateTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, parallel

embedding = partial(TokenEmbedding, size=6)
bilstm = partial(RecurrentEncoder, size=4, bidirectional=True)
luong = partial(RecurrentDecoder, size=8, bridge="state", context=CrossAttention)
bahdanau = partial(RecurrentDecoder, cell="gru", size=8, bridge="state", attend="before", context=CrossAttention)
transformer = partial(TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0)
MODELS: dict[str, dict[str, Any]] = {
    "luong": {"encoder": bilstm, "decoder": luong},
    "bahdanau": {"encoder": bilstm, "decoder": bahdanau},
    "no_attention": {"encoder": bilstm, "decoder": partial(RecurrentDecoder, cell="gru", size=8, bridge="state")},
    "transformer": {
        "encoder": partial(TransformerEncoder, size=8, num_heads=2, num_layers=1, dropout=0.0),
        "decoder": transformer,
    },
    "copy": {"encoder": bilstm, "decoder": luong, "copy": True},
    "decoder_only": {"kind": DecoderOnly, "encoder": partial(RecurrentEncoder, size=8), "shared_vocabulary": True},
    "causal": {
        "kind": DecoderOnly,
        "encoder": partial(TransformerEncoder, size=8, num_heads=2, num_layers=1, causal=True, dropout=0.0),
        "shared_vocabulary": True,
    },
}
HARD: dict[str, Any] = {
    "encoder": bilstm,
    "decoder": partial(RecurrentDecoder, size=8, bridge="state", context=partial(CrossAttention, select=Hard)),
}
STOCHASTIC: dict[str, Any] = {
    "embedding": partial(TokenEmbedding, size=6, dropout=0.2, word_dropout=0.2),
    "encoder": bilstm,
    "decoder": partial(HARD["decoder"], dropout=0.2),
    "dropout": 0.2,
    "scheduled_sampling": 0.5,
}
ANIMALS = parallel(
    "der hund rennt: the dog runs", "eine katze: a cat", "hunde: dogs", "der hund schläft: the dog sleeps"
)
SENTENCES = parallel(
    "the cat sat on the mat: the cat sat on the mat",
    "a dog runs far away: a dog runs far off",
    "two men: two men are here",
    "no: yes",
    "A tall WOMAN sings songs: a tall woman sings songs",
)
NAMES = InMemoryCorpus(
    parallel("my name is x: hello x", "my name is y: hello y", "i am x: hello x"),
    test=parallel("my name is zorblo: my name is zorblo", "am gnu: am gnu", "hello: gnu"),
)


def build_task(
    corpus: Any, baseline: Any = NoBaseline, kind: type[Seq2SeqModel] = EncoderDecoder, **options: Any
) -> TranslateTask:
    """Builds a task; options that are not of the task are passed to the model."""
    corpus = InMemoryCorpus(corpus) if isinstance(corpus, Examples) else corpus
    task_options = TranslateTask.__init__.__annotations__
    parts = {name: options.pop(name) for name in [*options] if name not in task_options}
    return TranslateTask(corpus, partial(kind, **({"embedding": embedding} | parts)), baseline, **options)


class MarkovDecoder(Decoder):
    """Outputs the embedding of the preceding token, whatever the source."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__(sizes)
        self.output_size = sizes.inputs

    def forward(
        self, inputs: Tensor, memory: Memory, state: Any = None, need_weights: bool = False, lengths: Any = None
    ) -> DecoderOutput:
        return DecoderOutput(inputs, state)


class RepeatingDecoder(Decoder):
    """Outputs the embeddings of the source tokens one by one, then the end, and attends to the current one."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__(sizes)
        self.output_size = sizes.vectors

    def forward(
        self, inputs: Tensor, memory: Memory, state: Any = None, need_weights: bool = False, lengths: Any = None
    ) -> DecoderOutput:
        first = 0 if state is None else state
        steps = torch.arange(first, first + inputs.shape[1]).expand(len(inputs), -1)
        within = steps < memory.lengths[:, None]
        position = steps.minimum(memory.lengths[:, None] - 1)
        rows = torch.arange(len(inputs))[:, None]
        end = F.one_hot(torch.tensor(END), memory.vectors.shape[-1]).float()
        weights = F.one_hot(position, memory.vectors.shape[1]) * within[..., None]
        output = torch.where(within[..., None], memory.vectors[rows, position], end)
        return DecoderOutput(output, first + inputs.shape[1], weights.float())


A, B = 4, 5  # target words of equal frequency, in alphabetical order
MARKOV_TRAIN = parallel("x: a b", "x y: b", "y: b a", "y y: a")
MARKOV_TEST = parallel("x: a b", "x y: b", "y: b a", "y y: b")
TRANSITIONS = {START: {A: 0.6, B: 0.4}, A: {A: 0.25, B: 0.5, END: 0.25}, B: {A: 0.1, END: 0.9}}
"""Probabilities of the next token. Greedy decoding gives "a b", of probability 0.27; "b" has 0.36."""
MARKOV_MODEL = {
    "embedding": partial(TokenEmbedding, size=6),
    "encoder": interfaces.IdentityEncoder,
    "decoder": MarkovDecoder,
}


def set_transitions(embedding: TokenEmbedding, out: torch.nn.Linear, transitions: dict[int, dict[int, float]]) -> None:
    """Sets the embedding of each token to the log-probabilities of the next token."""
    table = embedding.table.weight.data.fill_(-100)  # almost impossible, but finite
    out.weight.data, out.bias.data = torch.eye(len(table)), torch.zeros(len(table))
    for token, probabilities in transitions.items():
        for following, probability in probabilities.items():
            table[token, following] = math.log(probability)


def markov_task(
    test: Examples = MARKOV_TEST, transitions: dict[int, dict[int, float]] = TRANSITIONS, **options: Any
) -> TranslateTask:
    """Builds a task whose next token depends on the preceding one only."""
    task = build_task(InMemoryCorpus(MARKOV_TRAIN, test, test), **MARKOV_MODEL, **options)
    set_transitions(task.model.embedding, task.model.out, transitions)
    return task


def repeating_task(corpus: Any, **options: Any) -> TranslateTask:
    """Builds a task that repeats the source, with <unknown> for unknown words unless it copies."""
    corpus = InMemoryCorpus(corpus) if isinstance(corpus, Examples) else corpus
    train = corpus.load("train")
    size = len(Vocabulary.from_texts(train.texts + train.targets, options.get("min_count", 1)))
    model = {
        "embedding": partial(TokenEmbedding, size=size),
        "encoder": interfaces.IdentityEncoder,
        "decoder": RepeatingDecoder,
    }
    task = build_task(corpus, shared_vocabulary=True, **model, **options)
    for module in (task.model.embedding.table, task.model.out):
        module.weight.data = torch.eye(size)
    task.model.out.weight.data *= 50
    task.model.out.bias.data.zero_()
    if task.model.gate is not None:  # generates known words and copies unknown ones
        task.model.gate.weight.data.zero_()
        task.model.gate.weight.data[0, UNKNOWN] = -100
        task.model.gate.bias.data.fill_(50)
    return task.eval()


def restore(task: TranslateTask, corpus: Any = None, search: Search | None = None, **parts: Any) -> TextTranslator:
    """Restores the trained model from a state that has been saved and loaded."""
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    kind = parts.pop("kind", EncoderDecoder)
    arguments = {
        "model": partial(kind, **({"embedding": embedding} | parts)),
        "corpus": corpus or InMemoryCorpus(ANIMALS),
        "search": search or Search(),
        "device": "cpu",
    }
    return TranslateTask.restore(torch.load(file, weights_only=True), arguments)


def generate_texts(task: TranslateTask, *texts: str, **options: Any) -> list[list[str]]:
    """Returns the hypotheses of the search for every text, best first."""
    generated = task.generate(Examples(tuple(tuple(text.split()) for text in texts)), **options)
    return [[" ".join(words) for words, _ in hypotheses] for hypotheses in generated]
