"""Tables of a classification, by hand."""

import torch

from ram.metrics.classification import Classification

CLASSIFICATION = Classification(
    ["a.png", "b, c.png", "d.png", "e.png"],
    torch.tensor([0, 0, 1, 0]),
    torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.25, 0.625], [0.25, 0.5, 0.25], [0.25, 0.125, 0.625]]),
    ["cat", "dog", "cow"],
)


def test_confusion_counts_each_class_by_predicted_class() -> None:
    assert CLASSIFICATION.confusion().tolist() == [[1, 0, 2], [0, 1, 0], [0, 0, 0]]


def test_the_predictions_are_a_table() -> None:
    assert CLASSIFICATION.predictions_csv().splitlines() == [
        "input,label,prediction,probability_of_label,probability_of_prediction,correct",
        "a.png,cat,cat,0.500000,0.500000,1",
        '"b, c.png",cat,cow,0.125000,0.625000,0',
        "d.png,dog,dog,0.500000,0.500000,1",
        "e.png,cat,cow,0.250000,0.625000,0",
    ]


def test_the_error_of_each_class_is_a_table() -> None:
    assert CLASSIFICATION.classes_csv().splitlines() == [
        "class,inputs,errors,error,most_often_predicted_instead",
        "cat,3,2,66.67,cow",
        "dog,1,0,0.00,",
        "cow,0,0,,",
    ]


def test_parts_are_joined_in_order() -> None:
    labels, probability = CLASSIFICATION.labels, CLASSIFICATION.probability
    parts = [(labels[:3], probability[:3]), (labels[3:], probability[3:])]
    joined = Classification.join(parts, CLASSIFICATION.inputs, CLASSIFICATION.classes)
    assert joined.predictions_csv() == CLASSIFICATION.predictions_csv()
