"""lab08 in PyTorch: GradScaler under FSDP2, and two steps whose gradients overflow on only one rank.

Alone:            python book/pytorch/lab08.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab08.py
Beside lab08:     python book/pytorch/compare.py lab08
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import shared
from shared import GPT, Job, adamw, cross_entropy, mean

JOB = Job(ranks=2, batch=2, grad_accum=2, steps=8)
BAD = [3, 4]  # steps, counted from 1


# ANCHOR: heart
def train(model, optimizer, scaler, batches):
    losses, norms, taken = [], [], []
    for step, micro_batches in enumerate(batches, 1):
        optimizer.zero_grad()
        loss = 0
        for x, y in micro_batches:
            share = cross_entropy(model(x), y) / len(micro_batches)
            scaler.scale(share).backward()  # each reduces; set_requires_gradient_sync could wait
            loss += share.detach()
        overflow(model, step)  # in the bad steps, and on one rank
        scaler.unscale_(optimizer)  # before the clipping; it also looks for inf and nan
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        scaler.step(optimizer)  # not, if a rank found one
        before = scaler.get_scale()
        scaler.update()  # half the scale then, and twice after `growth_interval` good steps
        losses.append(mean(loss))
        norms.append(norm.item())
        taken.append(scaler.get_scale() >= before)
    return losses, norms, taken
# ANCHOR_END: heart


def overflow(model, step):
    """What fp16 would do: in the bad steps, one gradient becomes infinite, and only in the last rank's shard."""
    if step in BAD and dist.get_rank() + 1 == JOB.ranks:
        model.wte.weight.grad.to_local()[0, 0] = float("inf")


class Alone(torch.amp.GradScaler):
    """A mistake: each rank looks for infinities in its own shards."""

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        gradients = [p.grad.to_local() for group in optimizer.param_groups for p in group["params"]]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale)
        return {found_inf.device: found_inf}


def run():
    batches = [[JOB.batch_of(dist.get_rank(), step, micro) for micro in range(JOB.grad_accum)] for step in range(JOB.steps)]
    model = fully_shard(GPT(JOB))
    Scaler = Alone if "steps" in shared.BROKEN else torch.amp.GradScaler
    scaler = Scaler("cpu", init_scale=2.0**16, growth_interval=4)
    losses, norms, taken = train(model, adamw(model, JOB.lr), scaler, batches)
    all_taken = [None] * JOB.ranks
    dist.all_gather_object(all_taken, taken)
    return {"losses": losses, "norms": norms, "taken": all_taken, "scale": scaler.get_scale()}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
