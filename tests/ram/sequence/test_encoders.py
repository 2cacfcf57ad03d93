"""Encoders against loops written by hand, and what must hold of every one of them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from envs import InputError
from ram.attention import MultiHeadAttention
from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions, SinusoidalPositions
from ram.attention.scores import Additive, Content, General
from ram.attention.selection import GumbelSoftmax, Hard, LocalMonotonic, LocalPredictive, Unnormalised
from ram.sequence.encoders import Encoder, EncoderOutput, IdentityEncoder
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder, TransformerLayer

WIDTH, SIZE = 3, 4
CELLS = ("rnn", "gru", "lstm")
SELECTIONS: dict[str, Any] = {
    "additive": {"score": Additive},
    "unnormalised": {"score": General, "select": Unnormalised},
    "hard": {"score": General, "select": Hard},
    "gumbel": {"score": General, "select": GumbelSoftmax},
    "local_m": {"score": General, "select": partial(LocalMonotonic, half_width=1)},
    "local_p": {"score": General, "select": partial(LocalPredictive, half_width=2)},
}
small = partial(TransformerEncoder, size=SIZE, num_heads=2)
BACK: dict[str, Callable[[int], Encoder]] = {
    "words": IdentityEncoder,
    **{cell: partial(RecurrentEncoder, cell=cell, size=SIZE) for cell in CELLS},
    "deep": partial(RecurrentEncoder, cell="gru", size=SIZE, num_layers=2, dropout=0.3),
    **{f"past_{cell}": partial(AttentiveRecurrentEncoder, cell=cell, size=SIZE) for cell in CELLS},
    **{f"past_{name}": partial(AttentiveRecurrentEncoder, size=SIZE, **how) for name, how in SELECTIONS.items()},
    **{f"below_{cell}": partial(AttentiveRecurrentEncoder, over="below", cell=cell, size=SIZE) for cell in CELLS},
    **{
        f"below_{name}": partial(AttentiveRecurrentEncoder, over="below", size=SIZE, **how)
        for name, how in SELECTIONS.items()
    },
    "transformer": partial(small, causal=True, dropout=0.3),
    "transformer_learned": partial(small, causal=True, positions=partial(LearnedPositions, max_length=9)),
    "transformer_numbered": partial(small, causal=True, positions=LinearPositions),
    "transformer_content": partial(small, causal=True, positions=NoPositions, score=Content),
    **{f"transformer_{name}": partial(small, causal=True, **how) for name, how in SELECTIONS.items()},
}
"""Those that look back alone."""

AROUND: dict[str, Callable[[int], Encoder]] = {
    **{f"bi{cell}": partial(RecurrentEncoder, cell=cell, size=SIZE, bidirectional=True) for cell in CELLS},
    "deep_bigru": partial(RecurrentEncoder, cell="gru", size=SIZE, num_layers=2, bidirectional=True, dropout=0.3),
    **{
        f"around_{cell}": partial(AttentiveRecurrentEncoder, over="below", cell=cell, size=SIZE, causal=False)
        for cell in CELLS
    },
    **{
        f"around_{name}": partial(AttentiveRecurrentEncoder, over="below", size=SIZE, causal=False, **how)
        for name, how in SELECTIONS.items()
    },
    "around_transformer": partial(small, dropout=0.3),
    "around_transformer_unnormalised": partial(small, **SELECTIONS["unnormalised"]),
    "around_transformer_hard": partial(small, **SELECTIONS["hard"]),
    "around_transformer_local_p": partial(small, **SELECTIONS["local_p"]),
}
"""Those that see what comes as well."""

EVERY = BACK | AROUND


def build(name: str, width: int = WIDTH) -> Encoder:
    """Of double precision, in evaluation."""
    torch.manual_seed(0)
    return EVERY[name](width).double().eval()


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def number_of(encoded: EncoderOutput, *part: Any) -> Tensor:
    """A number that every entry of a part moves, hard choices included."""
    factors = torch.linspace(1, 2, encoded.output.shape[-1], dtype=torch.float64)
    total = (encoded.output[part] * factors).sum()
    return total if encoded.log_prob is None else total + encoded.log_prob[part].sum()


# What must hold of every encoder.


@pytest.mark.parametrize("name", EVERY)
def test_what_comes_out_is_as_wide_as_announced(name: str) -> None:
    encoder = build(name)
    encoded = encoder(randn(2, 5, WIDTH), torch.tensor([5, 3]))
    assert encoded.output.shape == (2, 5, encoder.output_size)
    assert (encoded.log_prob is not None) == name.endswith("_hard")
    if encoded.log_prob is not None:
        assert encoded.log_prob.shape == (2, 5)
    assert encoder.directions == (2 if "bi" in name else 1)
    assert encoder.causal == (name in BACK)


@pytest.mark.parametrize("name", EVERY)
def test_padding_changes_neither_an_output_nor_its_gradient(name: str) -> None:
    encoder, lengths = build(name), [1, 3, 5]
    vectors = randn(3, 5, WIDTH)
    padded = torch.cat([vectors, randn(3, 2, WIDTH)], dim=1)
    for row, length in enumerate(lengths):
        padded[row, length:] *= 10
    padded.requires_grad_()
    encoded = encoder(padded, torch.tensor(lengths))
    total = 0
    for row, length in enumerate(lengths):
        alone = encoder(vectors[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(encoded.output[row, :length], alone.output[0])
        if encoded.log_prob is not None:
            torch.testing.assert_close(encoded.log_prob[row, :length], alone.log_prob[0])
        total = total + number_of(encoded, row, slice(length))
    (gradient,) = torch.autograd.grad(total, padded)
    for row, length in enumerate(lengths):
        assert not gradient[row, length:].any()
        assert gradient[row, :length].any(-1).all()


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "deep", "past_lstm", "below_gru", "around_rnn", "bilstm"])
def test_what_is_remembered_is_that_of_each_rows_end(name: str) -> None:
    encoder, lengths, vectors = build(name), [4, 1, 3], randn(3, 4, WIDTH)

    def remembered(rows: Tensor, lengths: list[int]) -> list[Tensor]:
        """(B, ...) of every part."""
        state = encoder(rows, torch.tensor(lengths)).state
        if isinstance(encoder, AttentiveRecurrentEncoder):
            return list(state[0])
        return list(state) if isinstance(state, tuple) else [state]

    together = remembered(vectors, lengths)
    for row, length in enumerate(lengths):
        alone = remembered(vectors[row : row + 1, :length], [length])
        torch.testing.assert_close([part[row] for part in together], [part[0] for part in alone])


@pytest.mark.parametrize("name", BACK)
def test_nothing_of_the_future_leaks(name: str) -> None:
    encoder, lengths = build(name), torch.tensor([5, 5])
    vectors = randn(2, 5, WIDTH).requires_grad_()
    encoded = encoder(vectors, lengths)
    for place in range(5):
        (gradient,) = torch.autograd.grad(number_of(encoded, slice(None), place), vectors, retain_graph=True)
        assert not gradient[:, place + 1 :].any()
        assert gradient[:, place].any()
        other = vectors.detach().clone()
        other[:, place + 1 :] = 10 * randn(2, 4 - place, WIDTH)
        changed = encoder(other, lengths)
        torch.testing.assert_close(changed.output[:, : place + 1], encoded.output[:, : place + 1])
        if encoded.log_prob is not None:
            torch.testing.assert_close(changed.log_prob[:, : place + 1], encoded.log_prob[:, : place + 1])


@pytest.mark.parametrize("name", [name for name in AROUND if not name.endswith(("_hard", "_gumbel", "_local_m"))])
def test_those_that_see_what_comes_say_so(name: str) -> None:
    encoder, vectors = build(name), randn(2, 5, WIDTH).requires_grad_()
    (gradient,) = torch.autograd.grad(number_of(encoder(vectors, torch.tensor([5, 5])), slice(None), 1), vectors)
    assert gradient[:, 2:].any()


@pytest.mark.parametrize("subwords", [[1] * 6, [2, 4], [3, 1, 2]], ids=str)
@pytest.mark.parametrize("name", BACK)
def test_reading_in_pieces_equals_reading_all_at_once(name: str, subwords: list[int]) -> None:
    encoder, vectors = build(name), randn(2, 6, WIDTH)
    whole = encoder(vectors, torch.tensor([6, 6]))
    state, outputs, log_probs = None, [], []
    for piece in vectors.split(subwords, dim=1):
        encoded = encoder(piece, torch.full((2,), piece.shape[1]), state)
        state = encoded.state
        outputs.append(encoded.output)
        log_probs.append(encoded.log_prob)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.output)
    if whole.log_prob is not None:
        torch.testing.assert_close(torch.cat(log_probs, dim=1), whole.log_prob)


@pytest.mark.parametrize("name", ["deep", "deep_bigru", "transformer", "around_transformer"])
def test_dropout_drops_in_training_alone(name: str) -> None:
    encoder, vectors, lengths = build(name), randn(2, 5, WIDTH), torch.tensor([5, 3])
    expected = encoder(vectors, lengths).output
    torch.testing.assert_close(encoder(vectors, lengths).output, expected)
    encoder.train()
    first, second = (encoder(vectors, lengths).output for _ in range(2))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, expected)


def test_words_are_left_as_they_are() -> None:
    vectors = randn(2, 5, WIDTH)
    assert torch.equal(build("words")(vectors, torch.tensor([5, 2])).output, vectors)


# Recurrent networks by hand.


def step(cell: str, weights: list[Tensor], seen: Tensor, held: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """State (and, of an LSTM, cell) after one more element, by the formulas."""
    from_input, from_state, input_bias, state_bias = weights
    state, memory = held
    seen, before = from_input @ seen + input_bias, from_state @ state + state_bias
    if cell == "rnn":
        return torch.tanh(seen + before), memory
    if cell == "gru":
        (r, z, n), (hr, hz, hn) = seen.chunk(3), before.chunk(3)
        reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        return (1 - update) * torch.tanh(n + reset * hn) + update * state, memory
    taken, kept, new, shown = (seen + before).chunk(4)
    memory = torch.sigmoid(kept) * memory + torch.sigmoid(taken) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(memory), memory


def parts(module: nn.Module, suffix: str = "") -> list[Tensor]:
    return [getattr(module, f"{name}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


NOTHING = (torch.zeros(SIZE, dtype=torch.float64),) * 2


def read(cell: str, weights: list[Tensor], row: Tensor) -> Tensor:
    """(N, D) -> (N, SIZE)."""
    held, outputs = NOTHING, []
    for seen in row:
        held = step(cell, weights, seen, held)
        outputs.append(held[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_network_is_its_formula_in_every_layer_and_direction(
    cell: Any, num_layers: int, bidirectional: bool
) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(WIDTH, cell, SIZE, num_layers, bidirectional, dropout=0.3).double().eval()
    lengths, vectors = [5, 2, 4], randn(3, 5, WIDTH)
    encoded = encoder(vectors, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        expected = vectors[row, :length]
        for layer in range(num_layers):
            directions = [read(cell, parts(encoder.layers, f"_l{layer}"), expected)]
            if bidirectional:
                backwards = parts(encoder.layers, f"_l{layer}_reverse")
                directions.append(read(cell, backwards, expected.flip(0)).flip(0))
            expected = torch.cat(directions, dim=1)
        torch.testing.assert_close(encoded.output[row, :length], expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("over", "causal"), [("past", True), ("past", False), ("below", True), ("below", False)])
def test_a_recurrent_layer_that_reads_again_is_its_formula(cell: Any, over: Any, causal: bool) -> None:
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, over, cell, SIZE, causal).double()
    assert encoder.causal == (causal or over == "past")  # the own past is never the future
    score = encoder.attention.score
    assert isinstance(score, General)
    lengths, vectors = [5, 1, 3], randn(3, 5, WIDTH)
    encoded = encoder(vectors, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        held, outputs = NOTHING, []
        for place in range(length):
            below = vectors[row, : place + 1 if causal else length]
            memory = list(outputs) if over == "past" else list(below)
            context = torch.zeros(SIZE if over == "past" else WIDTH, dtype=torch.float64)
            powers = [(score.weight.weight @ held[0] @ key).exp() for key in memory]
            for power, value in zip(powers, memory, strict=True):
                context = context + power / sum(powers) * value
            held = step(cell, parts(encoder.cell), torch.cat([vectors[row, place], context]), held)
            outputs.append(held[0])
        torch.testing.assert_close(encoded.output[row, :length], torch.stack(outputs))


def test_a_local_window_moves_on_with_the_place() -> None:
    select = partial(LocalMonotonic, half_width=1)
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, "below", "rnn", SIZE, causal=False, select=select).double()
    encoder.cell.weight_hh.data.zero_()  # what a state holds, it has read just now
    encoder.attention.score.weight.weight.data.zero_()  # and does not decide what is read next
    encoder.cell.weight_ih.data[:, :WIDTH].zero_()  # from around it
    vectors = randn(1, 7, WIDTH).requires_grad_()
    output = encoder(vectors, torch.tensor([7])).output
    (gradient,) = torch.autograd.grad(output[0, 5].sum(), vectors)
    assert gradient[0].any(-1).nonzero().flatten().tolist() == [4, 5, 6]


# The Transformer by hand.


def norm(vector: Tensor, layer: nn.LayerNorm) -> Tensor:
    centred = vector - vector.mean()
    return centred / (centred.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def layer_by_hand(layer: TransformerLayer, row: list[Tensor], seen: Callable[[int, int], bool]) -> list[Tensor]:
    attention, size = layer.attention, SIZE // layer.attention.num_heads
    normalised = [norm(vector, layer.attention_norm) for vector in row]
    first, second = layer.network[0], layer.network[2]
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
    outputs = []
    for place, vector in enumerate(row):
        heads = []
        for head in range(attention.num_heads):
            rows = slice(head * size, (head + 1) * size)
            query = attention.query.weight[rows] @ normalised[place]
            visible = [n for n in range(len(row)) if seen(place, n)]
            powers = [(query @ attention.key.weight[rows] @ normalised[n] / math.sqrt(size)).exp() for n in visible]
            values = [attention.value.weight[rows] @ normalised[n] for n in visible]
            heads.append(sum(power * value for power, value in zip(powers, values, strict=True)) / sum(powers))
        vector = vector + attention.out.weight @ torch.cat(heads)
        hidden = (first.weight @ norm(vector, layer.network_norm) + first.bias).clamp(min=0)
        outputs.append(vector + second.weight @ hidden + second.bias)
    return outputs


def jumbled(module: nn.Module) -> nn.Module:
    """With norms and biases that are not those of the start, which would hide whether they are used."""
    for value in module.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return module


@pytest.mark.parametrize("num_heads", [1, 2])
def test_a_layer_of_the_transformer_is_its_formula(num_heads: int) -> None:
    torch.manual_seed(0)
    layer = TransformerLayer(MultiHeadAttention(SIZE, num_heads=num_heads), 5, dropout=0.5).double().eval()
    jumbled(layer)
    vectors = randn(1, 4, SIZE)
    mask = torch.tensor([[[True, False, True, True], [True, True, True, True], [False, True, False, False]]])
    mask = torch.cat([mask, torch.tensor([[[False, True, True, False]]])], dim=1)
    output, (keys, values), log_prob = layer(vectors, mask)
    expected = layer_by_hand(layer, list(vectors[0]), lambda place, n: bool(mask[0, place, n]))
    torch.testing.assert_close(output[0], torch.stack(expected))
    assert keys.shape == values.shape == (1, 4, SIZE)
    assert log_prob is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [WIDTH, SIZE])
def test_a_transformer_is_positions_layers_and_a_norm(causal: bool, width: int) -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(width, SIZE, num_layers=2, num_heads=2, hidden_size=5, causal=causal).double().eval()
    jumbled(encoder)
    vectors, lengths = randn(2, 4, width), [4, 2]
    output = encoder(vectors, torch.tensor(lengths)).output
    for number, length in enumerate(lengths):
        row = []
        for place, vector in enumerate(vectors[number, :length]):
            if isinstance(encoder.into, nn.Linear):
                vector = encoder.into.weight @ vector
            angles = [place / 10000 ** (2 * i / SIZE) for i in range(SIZE // 2)]
            code = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
            row.append(2 * vector + torch.tensor(code, dtype=torch.float64))  # 2 is the square root of the width
        for layer in encoder.layers:
            row = layer_by_hand(layer, row, lambda place, n: n <= place or not causal)
        expected = torch.stack([norm(vector, encoder.norm) for vector in row])
        torch.testing.assert_close(output[number, :length], expected, atol=1e-6, rtol=0)
    assert isinstance(encoder.into, nn.Identity) == (width == SIZE)


def test_the_networks_of_a_transformer_are_four_times_as_wide_unless_told_otherwise() -> None:
    widths = [TransformerEncoder(8, 8, hidden_size=hidden).layers[0].network[0].out_features for hidden in (None, 5)]
    assert widths == [32, 5]


@pytest.mark.parametrize(
    ("positions", "follows"), [(NoPositions, True), (SinusoidalPositions, False), (LinearPositions, False)]
)
def test_without_positions_order_is_not_known(positions: Any, follows: bool) -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(WIDTH, SIZE, num_heads=2, positions=positions).double().eval()
    vectors, lengths, order = randn(2, 5, WIDTH), torch.tensor([5, 5]), torch.tensor([3, 0, 4, 2, 1])
    reordered = encoder(vectors[:, order], lengths).output
    assert torch.allclose(reordered, encoder(vectors, lengths).output[:, order]) == follows


def test_a_text_longer_than_the_positions_is_refused_in_pieces_too() -> None:
    encoder = build("transformer_learned")
    vectors, lengths = randn(2, 10, WIDTH), torch.tensor([5, 5])
    with pytest.raises(InputError, match="A sequence has length 10, but LearnedPositions has max_length=9"):
        encoder(vectors, torch.tensor([10, 10]))
    state = encoder(vectors[:, :5], lengths).state
    with pytest.raises(InputError, match="A sequence has length 10, but LearnedPositions has max_length=9"):
        encoder(vectors[:, 5:], lengths, state)


# Hard choices on the way.


@pytest.mark.parametrize(("over", "causal"), [("past", True), ("below", True), ("below", False)])
def test_the_choices_of_a_recurrent_layer_are_scored_with_what_they_were_drawn_from(over: Any, causal: bool) -> None:
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, over, "rnn", SIZE, causal, select=Hard).double().train()
    vectors, number = randn(1, 4, WIDTH), 4000
    encoded = encoder(vectors.expand(number, -1, -1), torch.full((number,), 4))
    assert encoded.log_prob is not None
    memory = encoded.output if over == "past" else vectors.expand(number, -1, -1)
    score = encoder.attention.score
    assert isinstance(score, General)
    for place in range(4):
        query = encoded.output[:, place - 1] if place else torch.zeros(number, SIZE, dtype=torch.float64)
        visible = place if over == "past" else place + 1 if causal else 4
        if not visible:
            assert not encoded.log_prob[:, place].any()  # there was nothing to choose from
            continue
        log_probs = ((query @ score.weight.weight.T)[:, None] @ memory[:, :visible].mT)[:, 0].log_softmax(-1)
        # Which one was chosen shows in the state: of all choices, one leads to it.
        reached = []
        for chosen in range(visible):
            into = torch.cat([vectors[:, place].expand(number, -1), memory[:, chosen]], dim=1)
            reached.append(encoder.cell(into, query))
        distance = (torch.stack(reached, 1) - encoded.output[:, place, None]).square().sum(-1)
        chosen = distance.argmin(1)
        assert distance.gather(1, chosen[:, None]).max() < 1e-20
        torch.testing.assert_close(encoded.log_prob[:, place], log_probs.gather(1, chosen[:, None])[:, 0])
        share = nn.functional.one_hot(chosen, visible).double().mean(0)
        torch.testing.assert_close(share, log_probs.exp().mean(0), atol=0.03, rtol=0)


def test_the_choices_of_a_transformer_are_scored_over_all_heads_and_layers() -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(WIDTH, SIZE, num_layers=2, num_heads=2, dropout=0.0, causal=True, select=Hard).double()
    vectors, lengths, told = randn(3, 4, WIDTH), torch.full((3,), 4), []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda module, inputs, outputs: told.append((module, inputs[0], outputs)))
    encoded = encoder.train()(vectors, lengths)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for layer, seen, (after, _, log_prob) in told:
        attention, normalised = layer.attention, layer.attention_norm(seen)
        query, keys, values = (
            linear(normalised).view(3, 4, 2, 2).transpose(1, 2)
            for linear in (attention.query, attention.key, attention.value)
        )
        scores = (query @ keys.mT / math.sqrt(2)).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf)
        log_probs = scores.log_softmax(-1)  # (B, heads, Q, N)
        total = torch.zeros(3, 4, dtype=torch.float64)
        for row in range(3):
            for place in range(4):
                # Of all pairs of keys that two heads may choose, one leads to what came out.
                pairs = [(one, other) for one in range(place + 1) for other in range(place + 1)]
                chosen = [torch.cat([values[row, 0, one], values[row, 1, other]]) for one, other in pairs]
                read = seen[row, place] + attention.out(torch.stack(chosen))
                reached = read + layer.network(layer.network_norm(read))
                distance = (reached - after[row, place]).square().sum(-1)
                one, other = pairs[int(distance.argmin())]
                assert distance.min() < 1e-20
                total[row, place] = log_probs[row, 0, place, one] + log_probs[row, 1, place, other]
        torch.testing.assert_close(log_prob, total)
        expected += total
    torch.testing.assert_close(encoded.log_prob, expected)
    assert len(told) == 2


@pytest.mark.parametrize("name", [name for name in EVERY if name.endswith("_hard")])
def test_choices_train_the_scores_through_their_probability_alone(name: str) -> None:
    encoder = build(name)
    encoder.train()
    encoded = encoder(randn(3, 5, WIDTH), torch.tensor([5, 5, 5]))
    layers = [encoder] if isinstance(encoder, AttentiveRecurrentEncoder) else list(encoder.layers)
    assert encoded.log_prob is not None
    last = layers[-1].attention.score.weight.weight  # the scores of an earlier layer also move the queries of this one
    through, chosen = (
        torch.autograd.grad(each.sum(), last, retain_graph=True, allow_unused=True)[0]
        for each in (encoded.output * torch.linspace(1, 2, SIZE), encoded.log_prob)
    )
    assert through is None or not through.any()
    assert chosen is not None and chosen.any()


# What is refused.


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (RecurrentEncoder, {"cell": "elman"}, r"encoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (RecurrentEncoder, {"size": 0}, r"encoder\.size must be at least 1, got 0"),
        (RecurrentEncoder, {"num_layers": 0}, r"encoder\.num_layers must be at least 1, got 0"),
        (AttentiveRecurrentEncoder, {"cell": "elman"}, r"encoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (AttentiveRecurrentEncoder, {"size": -1}, r"encoder\.size must be at least 1, got -1"),
        (AttentiveRecurrentEncoder, {"over": "above"}, r"encoder\.over must be below or past, got 'above'"),
        (TransformerEncoder, {"size": 0}, r"encoder\.size must be at least 1, got 0"),
        (TransformerEncoder, {"num_layers": 0}, r"encoder\.num_layers must be at least 1, got 0"),
        (TransformerEncoder, {"num_heads": 0}, r"encoder\.num_heads must be at least 1, got 0"),
        (TransformerEncoder, {"size": 8, "num_heads": 3}, "num_heads must divide the width of a query, 8; got 3"),
        (TransformerEncoder, {"size": 5, "num_heads": 5}, "Sinusoidal positions need an even width, got 5"),
        (TransformerEncoder, {"select": partial(GumbelSoftmax, temperature=0.0)}, "temperature of GumbelSoftmax"),
        (RecurrentEncoder, {"num_layers": 2, "dropout": 1.5}, r"encoder\.dropout"),
        (TransformerEncoder, {"dropout": 1.5}, r"encoder\.dropout"),
        (TransformerEncoder, {"hidden_size": -1}, r"encoder\.hidden_size"),
        (TransformerEncoder, {"hidden_size": 0}, r"encoder\.hidden_size"),
    ],
)
def test_wrong_options_are_refused_by_name(kind: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        kind(WIDTH, **options)
    assert kind(WIDTH).output_size == 128  # what is not told is the default, which nothing refuses
