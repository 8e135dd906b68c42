"""One case with one seed: a synthetic tape is made, and a real small model trained under it.

The glue between the study's values and the rooms that make tapes and train under them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from decodiloco.config import Run
from decodiloco.fragments.of_model import trained
from decodiloco.open_run import store_opening
from decodiloco.store.memory import MemoryStore
from decodiloco.training.corpus import read_corpus
from decodiloco.training.gpt import build
from replay.retrain.rerun import Wanted, rerun
from replay.study import baseline
from replay.study.cases import Case
from replay.study.reading import read_tape
from replay.study.results import Result
from replay.study.settings import Study, evaluate_merges, run_of, scenario_of, trial_of
from replay.synthetic.baseline import data_parallel
from replay.synthetic.records import synthetic_records


def tried(case: Case, seed: int, study: Study) -> Result:
    """Trains the case with the seed; the same in any process on this machine."""
    torch.set_num_threads(1)
    began = time.process_time()
    run = run_of(case, seed, study)
    told = _data_parallel if case.is_data_parallel else _under_tape
    result = told(case, run, seed, study)
    return replace(result, cpu_seconds=round(time.process_time() - began, 1))


def _under_tape(case: Case, run: Run, seed: int, study: Study) -> Result:
    cluster = trial_of(case, study).cluster
    store = MemoryStore("study")
    opening = store_opening(run, trained(build(run.model)), store)
    records = synthetic_records(opening, cluster, seed)
    read = read_tape(records, opening, cluster.step_seconds)
    corpus = read_corpus(run.training, run.model.context)
    wanted = Wanted(evaluate_merges=evaluate_merges(case, study))
    told = rerun(records, opening, store, corpus, wanted)
    return Result(
        case=case.name,
        seed=seed,
        loss=told.losses[-1].loss,
        losses=tuple((one.tokens / study.tokens_of(case), one.loss) for one in told.losses),
        merges=read.merges,
        versions=read.merges / study.fragments,
        tokens=read.tokens,
        elapsed_steps=read.elapsed_seconds / cluster.median_step_seconds,
        goodput=100 * read.goodput_share,
        per_merge=read.per_merge,
        steps_between=read.steps_between,
        merged=100 * read.merged_share,
        lives=read.lives,
        cpu_seconds=0.0,
    )


def _data_parallel(case: Case, run: Run, seed: int, study: Study) -> Result:
    whole, steps = study.sequences, study.steps_of(case)
    job = data_parallel(
        scenario_of(1, case.chips), whole, whole * steps, seed, failing=case.chips > 0
    )
    corpus = read_corpus(run.training, run.model.context)
    losses = baseline.train(run, corpus, job.sequences, study.evaluations)
    elapsed_steps = job.seconds / scenario_of(1, case.chips).step_seconds(0)
    return Result(
        case=case.name,
        seed=seed,
        loss=losses[-1][1],
        losses=tuple((tokens / study.tokens_of(case), loss) for tokens, loss in losses),
        merges=0,
        versions=0.0,
        tokens=losses[-1][0],
        elapsed_steps=elapsed_steps,
        goodput=100 * steps / elapsed_steps,
        per_merge=0.0,
        steps_between=0.0,
        merged=100.0,
        lives=1,
        cpu_seconds=0.0,
    )
