"""Hugging Face's torch classes and torch's AdamW, eager or compiled by `torch.compile`."""

import contextlib
from typing import Any

import torch
from transformers import AlbertConfig, AlbertForPreTraining

from benchmarks.systems import CLIP_NORM, LEARNING_RATE, WEIGHT_DECAY, Step
from benchmarks.systems.hf_config import hf_config
from benchmarks.workloads import Workload, batch_of


def eager(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the step from the modules of AlbertForPreTraining.

    Its own forward would score every position.
    """
    return _step(workload, precision, compiled=False)


def compiled(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the same step, with forward and loss compiled."""
    return _step(workload, precision, compiled=True)


def _step(workload: Workload, precision: str, compiled: bool) -> Step:
    model = AlbertForPreTraining(AlbertConfig(**hf_config(workload))).train()
    optimizer = _adamw(model)
    batch = {name: torch.from_numpy(value) for name, value in batch_of(workload).items()}
    batch |= {name: batch[name].long() for name in ("masked_lm_positions", "masked_lm_ids")}
    batch["pair_label"] = batch["pair_label"].long()
    loss_of = torch.compile(_loss) if compiled else _loss

    def step() -> float:
        with _autocast(precision):
            loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def _loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    sequence, pooled = model.albert(
        batch["input_word_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["input_type_ids"],
    )[:2]
    rows = torch.arange(sequence.shape[0])[:, None]
    mlm_logits = model.predictions(sequence[rows, batch["masked_lm_positions"]])  # [B, P, V]
    pair_logits = model.sop_classifier(pooled)
    cross_entropy = torch.nn.functional.cross_entropy
    return cross_entropy(
        mlm_logits.flatten(0, 1).float(), batch["masked_lm_ids"].flatten()
    ) + cross_entropy(pair_logits.float(), batch["pair_label"])


def _adamw(model: Any) -> torch.optim.Optimizer:
    excluded = ("bias", "LayerNorm", "layer_norm")
    named = list(model.named_parameters())
    plain = [parameter for name, parameter in named if any(word in name for word in excluded)]
    decayed = [parameter for name, parameter in named if not any(word in name for word in excluded)]
    groups = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=1e-6, weight_decay=WEIGHT_DECAY)


def _autocast(precision: str) -> contextlib.AbstractContextManager:
    if precision == "mixed_bfloat16":
        return torch.autocast("cpu", torch.bfloat16)
    return contextlib.nullcontext()
