"""lab01 in PyTorch: an all-reduce through rank 0, and one around a ring, of sends and receives.

Alone:            python book/pytorch/lab01.py
Or by torchrun:   torchrun --nproc-per-node 4 book/pytorch/lab01.py
Beside lab01:     python book/pytorch/compare.py lab01
"""

import torch
import torch.distributed as dist

import shared

RANKS = 4


# ANCHOR: heart
def all_reduce(mine):
    """Rank 0 adds up all ranks' numbers, and sends the sums back."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sums = mine.clone()
    if rank == 0:
        theirs = torch.empty_like(mine)
        for other in range(1, ranks):
            dist.recv(theirs, other)
            sums += theirs
        for other in range(1, ranks):
            dist.send(sums, other)
    else:
        dist.send(mine, 0)
        dist.recv(sums, 0)
    return sums
# ANCHOR_END: heart


def reduce_scatter(parts):
    """Each part starts at the rank after its owner. Every rank that it passes adds its own numbers."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for k in range(ranks - 1):
        parts[(rank - k - 2) % ranks].add_(pass_on(parts[(rank - k - 1) % ranks]))


def all_gather(parts):
    """Each rank sends its own part first, and then the part that it received in the round before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for k in range(ranks - 1):
        parts[(rank - k - 1) % ranks].copy_(pass_on(parts[(rank - k) % ranks]))


def pass_on(part):
    """Sends a part to the next rank, while one comes from the rank before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    coming = torch.empty_like(part)
    sending = dist.isend(part, (rank + 1) % ranks)  # two sends that wait would wait forever
    dist.recv(coming, (rank - 1) % ranks)
    sending.wait()
    return coming


def ring_all_reduce(mine):
    """Twice around the ring: the sums grow the first time, and the second time every rank gets them."""
    parts = mine.clone().chunk(dist.get_world_size())
    reduce_scatter(parts)
    all_gather(parts)
    return torch.cat(parts)


class Messages:
    """Notes the bytes of each message that this rank sends while it is open."""

    def __enter__(self):
        self.bytes, self.calls = [], (dist.send, dist.isend)
        dist.send, dist.isend = map(self.noting, self.calls)
        return self

    def __exit__(self, *_):
        dist.send, dist.isend = self.calls

    def noting(self, call):
        def send(tensor, to):
            self.bytes.append(tensor.numel() * tensor.element_size())
            return call(tensor, to)
        return send


def run():
    rank = dist.get_rank()
    mine = torch.arange(1, RANKS + 1) * 10**rank  # what lab01 draws
    if "numbers" in shared.BROKEN:
        mine[0] += 1
    if "bytes" in shared.BROKEN:  # half of them: the sums are the same
        mine = mine.int()
    returned = {}
    for name, algorithm in (("naive", all_reduce), ("ring", ring_all_reduce)):
        with Messages() as sent:
            sums = algorithm(mine)
        everyones = [None] * RANKS
        dist.all_gather_object(everyones, (sums.tolist(), len(sent.bytes), sum(sent.bytes)))
        returned |= {name: [one[0] for one in everyones], f"{name} sent": everyones[0][1:]}
    return returned


if __name__ == "__main__":
    shared.main(run, RANKS)
