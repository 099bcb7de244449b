"""Sizes of the head that is trained: parameters, FLOP and stored bytes a token, memory of the training."""

from dataclasses import replace
from typing import NamedTuple

from hwmodel.drafters import DraftOptions, build_drafter
from hwmodel.rank import Parallelism, RankWork
from hwmodel.specs import ModelShape
from simulator.system import System
from simulator.training.facts import training_facts

METHOD = "eagle3"
_BF16_BYTES = 2.0
_BACKWARD = 3.0  # forward and twice as much backward


class Head(NamedTuple):
    """One head. FLOP are of one token in one epoch, all training-time steps counted."""

    parameters: float
    weight_bytes: float
    flop_per_token: float
    state_bytes_per_token: float  # hidden states of the target, as stored for offline training
    memory_bytes: float  # of one GPU that trains alone, optimizer included
    optimizer_bytes: float  # the part of it that sharding over GPUs divides

    def memory_bytes_per_gpu(self, num_gpus: int) -> float:
        """Memory of one of `num_gpus` GPUs: weights and optimizer sharded, activations not."""
        return self.memory_bytes - self.optimizer_bytes * (1.0 - 1.0 / num_gpus)


def head_of(system: System) -> Head:
    """The usual EAGLE-3 head of a model (docs/options.md, eq. T3 to T5).

    FLOP a token = 6 (steps P_step + P_mixing): the layer and the vocabulary head run in every training-time step, what
    mixes the target's states only in the first. Stored: four hidden states in BF16.
    """
    recipe, shape = training_facts()["recipe"], system.shape
    alone = replace(system.machine, parallel=Parallelism())
    options = DraftOptions(draft_vocab_size=system.deployment.speculation.draft_vocab_size)
    drafter = build_drafter(METHOD, shape, alone, _BF16_BYTES, options)
    assert drafter.work is not None, "an EAGLE-3 head is a model"
    each, first = _parameters(drafter.work), _parameters(drafter.first_work or drafter.work)
    steps = float(recipe["steps"])
    optimizer = first * float(recipe["bytes_per_parameter"])
    vocabulary = drafter.work.vocab_size
    activations = (
        steps
        * recipe["sequence_tokens"]
        * (recipe["activation_bytes"] * shape.hidden_size + recipe["logit_bytes"] * vocabulary)
    )
    return Head(
        parameters=first,
        weight_bytes=first * _BF16_BYTES,
        flop_per_token=2.0 * _BACKWARD * (steps * each + first - each),
        state_bytes_per_token=float(recipe["stored_states"]) * shape.hidden_size * _BF16_BYTES,
        memory_bytes=optimizer + activations + frozen_bytes(shape),
        optimizer_bytes=optimizer,
    )


def frozen_bytes(shape: ModelShape) -> float:
    """Weights of the target that the training needs: embedding and vocabulary head."""
    return shape.embedding_bytes + shape.lm_head_read_bytes


def _parameters(work: RankWork) -> float:
    """Weights that one row is multiplied with."""
    return work.attention_parameters + work.dense_parameters + work.head_parameters
