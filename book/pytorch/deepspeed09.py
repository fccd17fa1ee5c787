"""lab09 in DeepSpeed: four ranks save, `ds_to_universal` converts, and two ranks load.

Alone:            python book/pytorch/deepspeed09.py
Beside lab09:     python book/pytorch/compare.py deepspeed09
"""

import argparse
import contextlib
import io
import pathlib
import tempfile

import torch
from torch.distributed import get_rank, get_world_size

import shared
import with_deepspeed
from deepspeed.checkpoint import ds_to_universal
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from lab09 import FEWER, JOB, KINDS, SAVE_AFTER, sha256
from shared import GPT, Job, adamw, cross_entropy, mean


# ANCHOR: heart
def first_job(folder):
    engine = start()
    losses = train(engine, range(SAVE_AFTER))
    before = hashes(engine)
    engine.save_checkpoint(folder, tag="four-ranks")  # each rank its part of the moments
    return losses, before


def convert(folder):  # between the jobs, in one process; the labs' ds_to_universal does the same
    ds_to_universal.main(options(f"{folder}/four-ranks", f"{folder}/universal"))
    pathlib.Path(folder, "latest_universal").write_text("universal")


def second_job(folder):
    engine = start(checkpoint={"load_universal": True})
    engine.load_checkpoint(folder, tag="universal")
    loaded = hashes(engine)
    return train(engine, range(SAVE_AFTER, JOB.steps)), loaded
# ANCHOR_END: heart


def options(folder, into):
    return argparse.Namespace(input_folder=folder, output_folder=into, num_extract_workers=1, num_merge_workers=1,
                              keep_temp_folder=False, strict=True, inject_missing_state=True)


def start(**config):
    batch = JOB.batch * JOB.ranks // get_world_size()
    model = GPT(JOB)
    return with_deepspeed.engine(model, adamw(model, JOB.lr), batch, zero_optimization={"stage": 1}, **config)


def train(engine, steps):
    job, losses = Job(**vars(JOB) | {"batch": JOB.batch * JOB.ranks // get_world_size()}), []
    for step in steps:
        x, y = job.batch_of(get_rank(), step)
        loss = cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss))
    return losses


def hashes(engine):
    """SHA-256 of each whole parameter and of its moments."""
    if engine.global_steps:  # 0.19.8 links moments to parameters when only the first group of them has had its first step
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    found = {}
    for name, p in engine.module.named_parameters():
        found[name] = [sha256(safe_get_full_fp32_param(p))] + [sha256(safe_get_full_optimizer_state(p, kind)) for kind in KINDS[1:]]
    return found


def run(broken=()):
    with tempfile.TemporaryDirectory() as folder:
        before, saved = shared.launch(first_job, JOB.ranks, folder, broken=broken)
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()):  # its progress
            convert(folder)
        if "moments" in broken:  # a converter without moments; to load with load_optimizer_states=False changes nothing in 0.19.8
            for file in pathlib.Path(folder, "universal", "zero").glob("*/exp_avg*.pt"):
                written = torch.load(file)
                torch.save(written | {"param": torch.zeros_like(written["param"])}, file)
        after, loaded = shared.launch(second_job, FEWER, folder, broken=broken)
    return {"losses": before + after, "saved": saved, "loaded": loaded}


if __name__ == "__main__":
    done = run()
    print("losses        ", *(f"{loss:.6f}" for loss in done["losses"]))
    same = sum(one == done["loaded"][name] for name, one in done["saved"].items())
    print(f"{same} of {len(done['saved'])} parameters with their moments have the same SHA-256, on {JOB.ranks} ranks and on {FEWER}")
