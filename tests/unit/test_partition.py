"""How tensors are dealt to fragments, on small models that one can check by hand."""

from __future__ import annotations

import pytest

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from decodiloco.fragments.partition import Piece, layer_of, partition


def pieces(*named: str, size: int = 4) -> list[Piece]:
    return [Piece(name, (size,), "float32") for name in named]


def dealt(found: list[Piece], fragments: int, strategy: str) -> dict[str, int]:
    run = Run.model_validate({"name": "t", "fragments": fragments, "partition": strategy})
    return {tensor.name: tensor.fragment for tensor in partition(found, run).tensors}


def test_balanced_puts_the_largest_first_and_each_where_least_lies() -> None:
    sizes = {"a": 10, "b": 7, "c": 6, "d": 4, "e": 1}
    found = [Piece(name, (size,), "float32") for name, size in sizes.items()]
    assert dealt(found, 2, "balanced") == {"a": 0, "b": 1, "c": 1, "d": 0, "e": 1}


def test_layer_gives_what_is_outside_a_fragment_and_layers_go_round_by_stride() -> None:
    layers = [f"blocks.{layer}.{part}" for layer in range(6) for part in ("attention", "mlp")]
    found = dealt(pieces("embedding", "norm", *layers), 4, "layer")
    assert (found["embedding"], found["norm"]) == (0, 0)
    assert [found[f"blocks.{layer}.mlp"] for layer in range(6)] == [1, 2, 3, 1, 2, 3]
    assert [found[f"blocks.{layer}.attention"] for layer in range(6)] == [1, 2, 3, 1, 2, 3]


def test_tensor_goes_round_by_stride_in_the_order_of_layers() -> None:
    names = [f"h.{layer}.w{part}" for layer in (2, 10) for part in range(3)]
    found = dealt(pieces("head", *names), 4, "tensor")
    assert [found[name] for name in names] == [1, 2, 3, 1, 2, 3]
    assert found["head"] == 0


def test_without_tensors_outside_all_fragments_take_layers() -> None:
    assert dealt(pieces("0.w", "1.w", "2.w"), 3, "layer") == {"0.w": 0, "1.w": 1, "2.w": 2}


@pytest.mark.parametrize("strategy", ["balanced", "layer", "tensor"])
def test_one_fragment_holds_everything(strategy: str) -> None:
    assert set(dealt(pieces("a", "l.0.w", "l.1.w"), 1, strategy).values()) == {0}


@pytest.mark.parametrize(("strategy", "most"), [("balanced", 5), ("layer", 3), ("tensor", 5)])
def test_too_many_fragments_are_refused_with_the_most_that_fit(strategy: str, most: int) -> None:
    found = pieces("a", "l.0.v", "l.0.w", "l.1.v", "l.1.w")
    assert len(set(dealt(found, most, strategy).values())) == most
    with pytest.raises(ConfigInvalid, match=f"at most {most};"):
        dealt(found, most + 1, strategy)


def test_a_layer_is_the_first_number_in_a_name() -> None:
    assert layer_of("blocks.3.mlp.0.weight") == ("blocks", 3)
    assert layer_of("0.weight") == ("", 0)
    assert layer_of("head.weight") is None


def test_embeddings_get_their_own_rule() -> None:
    run = Run.model_validate({"name": "t", "fragments": 1})
    found = [Piece("e", (4, 2), "float32", embedding=True), Piece("w", (4,), "bfloat16")]
    layout = partition(found, run)
    assert [(t.name, t.rule, t.dtype) for t in layout.tensors] == [
        ("e", "mean", "float32"),
        ("w", "radial", "bfloat16"),
    ]
