"""lab13 in PyTorch: two ranks share the experts of every block, and each token goes to those that its router chose.

Alone:            python book/pytorch/lab13.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab13.py
Beside lab13:     python book/pytorch/compare.py lab13

The two data ranks are the expert ranks as well: each has a batch of its own, the router and everything else whole, and half of
the experts. The balancing loss has Megatron-LM's form, with loads counted over all ranks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

import shared
from shared import GPT, Job, adamw, cross_entropy, mean

JOB = Job(ranks=2)
EXPERTS, TOP, COEFFICIENT = 8, 2, 0.01
WIDTH = 4 * JOB.embd // TOP  # then a token's experts compute as much as the MLP that they replace


# ANCHOR: mixture
class Mixture(nn.Module):
    """A router, and this rank's experts, in place of an MLP."""

    def __init__(self, router, experts):
        super().__init__()
        self.router, self.experts = router, nn.ModuleDict(experts)

    def forward(self, x):
        tokens, ranks = x.flatten(0, 1), dist.get_world_size()
        scores = self.router(tokens).softmax(-1)
        weights, chosen = scores.topk(TOP)
        weights = weights / weights.sum(-1, keepdim=True)
        chosen = chosen.flatten()
        sent = chosen.bincount(minlength=EXPERTS)
        self.balance = EXPERTS * (over_all_ranks(sent) * scores.mean(0)).sum()

        # How many copies come from each rank, for each expert here? Then the copies themselves.
        arrived = torch.empty_like(sent)
        dist.all_to_all_single(arrived, sent)
        to, come = (counts.view(ranks, -1).sum(1).tolist() for counts in (sent, arrived))
        order = chosen.argsort(stable=True)
        copies = all_to_all_single_autograd(tokens[order // TOP], come, to, dist.group.WORLD)

        # They are in the order of ranks: each expert's belong together.
        of_expert = torch.arange(len(self.experts)).repeat(ranks).repeat_interleave(arrived)
        by_expert = of_expert.argsort(stable=True)
        parts = copies[by_expert].split(arrived.view(ranks, -1).sum(0).tolist())
        results = torch.cat([expert(part) for expert, part in zip(self.experts.values(), parts)])
        results = all_to_all_single_autograd(results[by_expert.argsort()], to, come, dist.group.WORLD)
        results = results * weights.flatten()[order, None]
        return torch.zeros_like(tokens).index_add(0, order // TOP, results).view_as(x)
# ANCHOR_END: mixture


# ANCHOR: heart
def step(model, optimizer, x, y):
    loss = cross_entropy(model(x), y)
    balance = sum(block.mlp.balance for block in model.blocks.values())
    (loss + COEFFICIENT * balance).backward()
    experts = {p for block in model.blocks.values() for p in block.mlp.experts.parameters()}
    for p in model.parameters():
        if p not in experts:  # an expert's gradient has the summands of all ranks' tokens already
            dist.all_reduce(p.grad)
        if p not in experts or "divided" not in shared.BROKEN:
            p.grad /= dist.get_world_size()  # an expert's as well: the loss is the mean of all ranks'
    norm = clip(model, experts)
    optimizer.step()
    optimizer.zero_grad()
    return mean(loss), norm
# ANCHOR_END: heart


def clip(model, experts, most=1.0):
    """clip_grad_norm_ by the norm of all gradients: other ranks' experts have gradients as well."""
    squares = lambda some: sum(p.grad.square().sum() for p in some)
    of_experts = squares(experts)
    if "norm" not in shared.BROKEN:
        dist.all_reduce(of_experts)
    norm = (squares(p for p in model.parameters() if p not in experts) + of_experts).sqrt()
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm, foreach=False)
    return norm.item()


def over_all_ranks(copies):
    """Each expert's part of the copies that all ranks send. It has no gradient: a choice has none."""
    copies = copies.clone()
    dist.all_reduce(copies)
    return copies / copies.sum()


def share(model, rank):
    """Puts a mixture into every block: this rank's experts, with the labs' initial weights."""
    matrix = lambda name, *shape: torch.from_numpy(JOB.initial(name, shape))
    mine = range(EXPERTS)[rank * EXPERTS // JOB.ranks : (rank + 1) * EXPERTS // JOB.ranks]
    for i, block in model.blocks.items():
        router = linear(matrix(f"blocks.{i}.router.weight", EXPERTS, JOB.embd))
        experts = {}
        for number in mine:
            name = f"blocks.{i}.experts.{number}"
            fc, out = matrix(f"{name}.fc.weight", WIDTH, JOB.embd), matrix(f"{name}.out.weight", JOB.embd, WIDTH)
            experts[str(number)] = nn.Sequential(linear(fc), nn.GELU(), linear(out))
        block.mlp = Mixture(router, experts)


def linear(matrix):
    layer = nn.Linear(*reversed(matrix.shape), bias=False)
    layer.weight.data = matrix
    return layer


def run():
    rank = dist.get_rank()
    model = GPT(JOB)
    share(model, rank)
    optimizer = adamw(model, JOB.lr)
    losses, norms = zip(*(step(model, optimizer, *JOB.batch_of(rank, number)) for number in range(JOB.steps)))
    return {"losses": list(losses), "norms": list(norms)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
