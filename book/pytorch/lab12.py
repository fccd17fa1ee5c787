"""lab12 in PyTorch: two ranks share every sequence, by the ring attention of its context parallelism.

Alone:            python book/pytorch/lab12.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab12.py
Beside lab12:     python book/pytorch/compare.py lab12

`context_parallel` replaces the attention of GPUs alone, so its own two functions for a ring are called here with the attention
of processors. Its load balancer cuts the sequences: an early and a late chunk for each rank.
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

import shared
from shared import GPT, Job, adamw, clip, cross_entropy, mean, trained

JOB = Job(ranks=2, layers=2, heads=2, embd=64, block=64, data_ranks=1)
aten = torch.ops.aten


# ANCHOR: heart
class RingAttention(torch.autograd.Function):
    """Causal attention over the positions of all ranks, of which each has its own."""

    @staticmethod
    def forward(ctx, q, k, v):
        forward = aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = ring._templated_ring_attention(dist.group.WORLD, 2, forward, q, k, v, is_causal=True)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, d_out):
        q, k, v, out, lse = ctx.saved_tensors
        backward = lambda grad_out, query, key, value, out, logsumexp, is_causal: (
            aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad_out, query, key, value, out, logsumexp, 0.0, is_causal))
        return ring._templated_ring_attention_backward(
            dist.group.WORLD, 2, backward, d_out.contiguous(), "grad_out", q, k, v, out, lse, is_causal=True)


def step(model, optimizer, x, y, mine):
    """One step on this rank's positions of the batch; all ranks end with the same weights."""
    model.positions = mine
    loss = cross_entropy(model(x[:, mine]), y[:, mine])
    loss.backward()
    for p in model.parameters():  # a context rank is a data rank: each has a summand of every gradient
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    norm = clip(model)
    optimizer.step()
    optimizer.zero_grad()
    return mean(loss), norm
# ANCHOR_END: heart


class Shared(GPT):
    """The GPT with a ring in its attention, and the positions of this rank's tokens."""

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(self.positions)
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.lnf(x))


def attend(attention, x):
    q, k, v = (one(x).unflatten(-1, (-1, attention.width)).transpose(1, 2).contiguous()
               for one in (attention.q, attention.k, attention.v))
    return attention.proj(RingAttention.apply(q, k, v).transpose(1, 2).flatten(-2))


def run():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ring._cp_options.enable_load_balance = True
    ring.set_rotate_method("alltoall")  # by default each rank gathers all keys and values
    order = _HeadTailLoadBalancer(JOB.block, ranks, "cpu")._generate_indices().flatten()
    mine = order.chunk(ranks)[rank]
    if "positions" in shared.BROKEN:
        mine = order.flip(0).chunk(ranks)[rank]
    shared.Attention.forward = attend
    model = Shared(JOB)
    optimizer = adamw(model, JOB.lr)
    losses, norms = zip(*(step(model, optimizer, *JOB.batch_of(0, number), mine) for number in range(JOB.steps)))
    return {"losses": list(losses), "norms": list(norms), "positions": mine.tolist(), "weights": trained(model)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
