"""What of a torch module is trained, and which modules are refused, by the tensor's name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from decodiloco.config import Run
from decodiloco.errors import ModelUnfit
from decodiloco.fragments.of_model import same_layout, trained


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)


class One(nn.Module):
    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.odd = nn.Parameter(tensor)


def test_tied_weights_stand_once_and_count_as_embedding() -> None:
    found = trained(Tied())
    tied = found.pieces[2]
    assert (tied.name, tied.aliases, tied.embedding) == ("head.weight", ("words.weight",), True)
    assert [piece.name for piece in found.pieces] == [
        "body.bias",
        "body.weight",
        "head.weight",
        "norm.bias",
        "norm.weight",
    ]
    assert [piece.dtype for piece in found.pieces[:2]] == ["bfloat16", "bfloat16"]


def test_the_tensors_are_the_live_parameters() -> None:
    model = Tied()
    assert trained(model).tensors["head.weight"] is model.words.weight


def test_two_parameters_of_one_memory_are_one_tensor() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model["b"].weight.data = model["a"].weight.data
    found = trained(model)
    assert [(piece.name, piece.aliases) for piece in found.pieces] == [("a.weight", ("b.weight",))]


def test_memory_that_is_shared_in_part_is_refused() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 2, bias=False)})
    model["b"].weight.data = model["a"].weight.data[:2]
    with pytest.raises(ModelUnfit, match=r"a\.weight and b\.weight share part"):
        trained(model)


def test_a_compiled_module_has_the_names_of_the_plain_one() -> None:
    plain = nn.Sequential(nn.Linear(2, 2))
    compiled = nn.Sequential(nn.Linear(2, 2))
    compiled[0] = torch.compile(compiled[0])
    assert [p.name for p in trained(compiled).pieces] == [p.name for p in trained(plain).pieces]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.zeros(2, dtype=torch.float64), "odd is float64"),
        (torch.zeros(2, dtype=torch.complex64), "odd is complex"),
        (torch.zeros(2, device="meta"), "odd is on the meta device"),
        (torch.zeros(0), "odd holds no elements"),
    ],
)
def test_a_tensor_that_cannot_be_trained_is_refused_by_name(tensor: torch.Tensor, why: str) -> None:
    with pytest.raises(ModelUnfit, match=why):
        trained(One(tensor))


def test_a_sharded_tensor_is_refused_by_name() -> None:
    class DTensor(nn.Parameter):
        pass

    model = One(torch.zeros(2))
    model.odd = DTensor(torch.zeros(2))
    with pytest.raises(ModelUnfit, match="odd is sharded"):
        trained(model)


def test_a_model_on_several_devices_is_refused() -> None:
    from decodiloco.fragments import of_model

    places = {"a": torch.zeros(1), "b": torch.zeros(1, device="meta")}
    with pytest.raises(ModelUnfit, match="a on cpu, b on meta"):
        of_model._check_one_device(places)  # a second real device is not everywhere


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ModelUnfit, match="no trainable parameter"):
        trained(nn.ReLU())


def test_layouts_that_differ_are_told_by_the_first_difference() -> None:
    run = Run.model_validate({"name": "t", "fragments": 1})
    ours = trained(nn.Sequential(nn.Linear(2, 3))).layout(run)
    wider = trained(nn.Sequential(nn.Linear(2, 4))).layout(run)
    deeper = trained(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))).layout(run)
    assert same_layout(ours, ours) is None
    assert same_layout(ours, wider) == "0.bias: shape is (3,) here and (4,) in the run"
    assert same_layout(ours, deeper) == "the run has 1.bias, this model has not"
    assert same_layout(deeper, ours) == "this model has 1.bias, the run has not"
