"""lab09 in PyTorch: four ranks save by distributed checkpointing (DCP), and two ranks load.

Alone:            python book/pytorch/lab09.py
Beside lab09:     python book/pytorch/compare.py lab09

Two jobs of different sizes: torchrun starts one, so this script starts its ranks itself. Alone, the first job trains before it
saves; beside lab09, it begins with what lab09 saved.
"""

import hashlib
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import shared
from shared import GPT, Job, adamw, cross_entropy, mean, ours, read_safetensors, whole

JOB = Job(ranks=4, batch=3, steps=20, sampler="global")
SAVE_AFTER = 10
FEWER = 2
KINDS = ("fp32", "exp_avg", "exp_avg_sq")


# ANCHOR: heart
def save(folder, model, optimizer):
    weights, moments = get_state_dict(model, optimizer)  # this rank's shards, by name
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)


def load(folder, model, optimizer):
    weights, moments = get_state_dict(model, optimizer)  # the shards that this rank wants
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)  # read in place
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    assert optimizer.state  # empty after a backward pass: then there was no place for moments
# ANCHOR_END: heart


def train(model, optimizer, steps):
    batch = JOB.batch * JOB.ranks // dist.get_world_size()  # the same sequences per step on any number of ranks
    job, losses = Job(**vars(JOB) | {"batch": batch}), []
    for step in steps:
        loss = cross_entropy(*forward(model, job.batch_of(dist.get_rank(), step)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return losses


def forward(model, batch):
    x, y = batch
    return model(x), y


def first_job(folder, lab09s):
    """Trains, or takes what lab09 saved, and saves it by DCP."""
    model = fully_shard(GPT(JOB))
    optimizer = adamw(model, JOB.lr)
    if lab09s:
        take(model, optimizer, lab09s)
        losses = []
    else:
        losses = train(model, optimizer, range(SAVE_AFTER))
    if "weight" in shared.BROKEN:
        model.wte.weight.data *= 1.01
    save(folder, model, optimizer)
    return losses, hashes(model, optimizer)


def second_job(folder):
    """Loads on fewer ranks, and trains on."""
    model = fully_shard(GPT(JOB))
    optimizer = adamw(model, JOB.lr)
    load(folder, model, optimizer)
    if "moments" in shared.BROKEN:
        optimizer = adamw(model, JOB.lr)
        train(model, optimizer, [0])
    loaded = hashes(model, optimizer)
    return train(model, optimizer, range(SAVE_AFTER, JOB.steps)), loaded


def read(folder):
    """What lab09 saved: the tensors of each kind by the names that they have here."""
    kinds = {}
    for kind in KINDS:
        files = {path.parent.name: read_safetensors(path) for path in pathlib.Path(folder).glob(f"zero/*/{kind}.safetensors")}
        kinds[kind] = ours({name: next(iter(tensors.values())) for name, tensors in files.items()})
    return kinds


def take(model, optimizer, folder):
    """Takes values and moments from lab09's universal checkpoint: a folder per parameter, a file per kind."""
    kinds = read(folder)
    for name, p in model.named_parameters():
        values, *moments = (distribute_tensor(tensors[name], p.device_mesh, p.placements) for tensors in kinds.values())
        p.data.copy_(values)
        optimizer.state[p] = {"step": torch.tensor(float(SAVE_AFTER))} | dict(zip(KINDS[1:], moments))


def hashes(model, optimizer):
    """SHA-256 of each whole parameter and of its moments."""
    tensors = {name: [p] + [optimizer.state[p][kind] for kind in KINDS[1:]] for name, p in model.named_parameters()}
    return {name: [sha256(whole(tensor.detach())) for tensor in all_three] for name, all_three in tensors.items()}


def sha256(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def run(lab09s=None, broken=()):
    with tempfile.TemporaryDirectory() as folder:
        before, saved = shared.launch(first_job, JOB.ranks, folder, lab09s, broken=broken)
        after, loaded = shared.launch(second_job, FEWER, folder, broken=broken)
    return {"losses": before + after, "saved": saved, "loaded": loaded}


if __name__ == "__main__":
    done = run()
    print("losses        ", *(f"{loss:.6f}" for loss in done["losses"]))
    same = sum(one == done["loaded"][name] for name, one in done["saved"].items())
    print(f"{same} of {len(done['saved'])} parameters with their moments have the same SHA-256, on {JOB.ranks} ranks and on {FEWER}")
