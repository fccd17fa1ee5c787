"""lab06 in PyTorch: the GPT in stages, under four schedules of torch.distributed.pipelining.

Alone:            python book/pytorch/lab06.py
Or by torchrun:   torchrun --nproc-per-node 4 book/pytorch/lab06.py
Beside lab06:     python book/pytorch/compare.py lab06
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

import shared
from shared import GPT, Job, adamw, cross_entropy

JOB = Job(ranks=4, layers=8, heads=4, batch=2, grad_accum=8, steps=10, data_ranks=1)
# lab06's name for a schedule, PyTorch's, and how many stages a rank has.
SCHEDULES = {
    "gpipe": (ScheduleGPipe, 1),
    "1f1b": (Schedule1F1B, 1),
    "interleaved": (ScheduleInterleaved1F1B, 2),
    "zero-bubble": (ScheduleInterleavedZeroBubble, 1),
}


# ANCHOR: heart
def train(parts, Schedule, optimizer, batches, table, ends):
    """Trains this rank's parts of the model; `parts` has them by the numbers of their stages."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stages = [Stage(part, i, ranks * len(parts), torch.device("cpu")) for i, part in parts.items()]
    if Schedule in (ScheduleGPipe, Schedule1F1B):
        stages, = stages  # these take one stage, the others a list
    schedule = Schedule(stages, n_microbatches=JOB.grad_accum, loss_fn=cross_entropy)
    all_losses = []
    for x, y in batches:  # all micro-batches of a step in one tensor
        inputs, target = [x] if rank == 0 else [], y if rank + 1 == ranks else None
        losses = []  # of the micro-batches, on the last rank
        schedule.step(*inputs, target=target, losses=losses, return_outputs=False)  # logits are not kept
        if table is not None:  # the token table is on the first stage, and on the last one
            dist.all_reduce(table.grad, group=ends)
        clip(parts.values(), table)
        optimizer.step()
        optimizer.zero_grad()
        all_losses.append(mean_on_last(losses))
    return all_losses
# ANCHOR_END: heart


class Stage(PipelineStage):
    """A stage that notes its passes: `4F0` is stage 4, forward, micro-batch 0; `B` is backward, `W` only for the weights.

    The three methods are PyTorch 2.15's own, which its documentation does not promise: another version may name them
    differently, and then nothing is noted.
    """

    passes = []

    def forward_one_chunk(self, micro, *args, **kwargs):
        self.passes.append(f"{self.stage_index}F{micro}")
        return super().forward_one_chunk(micro, *args, **kwargs)

    def backward_one_chunk(self, micro, *args, **kwargs):
        self.passes.append(f"{self.stage_index}B{micro}")
        return super().backward_one_chunk(micro, *args, **kwargs)

    def backward_weight_one_chunk(self, micro, *args, **kwargs):
        self.passes.append(f"{self.stage_index}W{micro}")
        return super().backward_weight_one_chunk(micro, *args, **kwargs)


class Part(nn.Module):
    """Some blocks of the model; the first part has the embedding too, and the last one the head with a table of its own."""

    def __init__(self, gpt, i, of):
        super().__init__()
        count = len(gpt.blocks) // of
        self.blocks = nn.ModuleList(list(gpt.blocks.values())[i * count : (i + 1) * count])
        self.wte, self.wpe = (gpt.wte, gpt.wpe) if i == 0 else (None, None)
        self.lnf, self.head = (gpt.lnf, gpt.head) if i + 1 == of else (None, None)

    def forward(self, x):
        if self.wte:
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.lnf(x)) if self.head else x


def clip(parts, table):
    """clip_grad_norm_ over all stages: the table counts once."""
    parameters = [p for part in parts for p in part.parameters()]
    counted = [p.grad for p in parameters if p is not table or dist.get_rank() == 0]
    squares = torch.nn.utils.get_total_norm(counted) ** 2
    dist.all_reduce(squares)
    torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, squares.sqrt())


def mean_on_last(losses):
    """The mean of the micro-batches' losses, which the last rank has, on all ranks."""
    loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
    dist.broadcast(loss, dist.get_world_size() - 1)
    return loss.item()


def run():
    batches = []
    for step in range(JOB.steps):
        micro_batches = [JOB.batch_of(0, step, micro) for micro in range(JOB.grad_accum)]
        batches.append([torch.cat(both) for both in zip(*micro_batches)])
    ends = dist.new_group([0, JOB.ranks - 1])
    returned = {}
    names = list(SCHEDULES)
    for i, name in enumerate(names):
        schedule, chunks = SCHEDULES[names[i - 1] if "order" in shared.BROKEN else name]
        gpt, of = GPT(JOB), JOB.ranks * chunks
        parts = {i: Part(gpt, i, of) for i in range(dist.get_rank(), of, JOB.ranks)}
        table = gpt.wte.weight if dist.get_rank() in (0, JOB.ranks - 1) else None
        Stage.passes = []
        losses = train(parts, schedule, adamw(nn.ModuleList(parts.values()), JOB.lr), batches, table, ends)
        orders = [None] * JOB.ranks
        dist.all_gather_object(orders, " ".join(Stage.passes[: len(Stage.passes) // JOB.steps]))
        returned |= {name: losses, f"{name} orders": orders}
    return returned


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
