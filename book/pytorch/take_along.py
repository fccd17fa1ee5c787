"""Checks to take along: copy this one file beside a training job in PyTorch. It needs nothing but torch.

    take_along.replicas(model, data_group, optimizer)     # every 100 steps, say: only hashes cross

All ranks of `group` (without one: of the job) call a check at the same place. It returns, or raises `Wrong` with rank and parameter
on ALL of them, so that none waits for one that has stopped. Parameters may be plain tensors or DTensors, on gloo or NCCL. `names`
turns a parameter's name on this rank into its name in the whole model (of stages that count layers from 0), or into None.
"""

import contextlib
import itertools
import math
import re

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WRAPPERS = re.compile(r"(?<![^.])(module|_orig_mod|_checkpoint_wrapped_module)\.")


class Wrong(AssertionError): pass

def gathered(mine, group=None):
    """What each rank of the group has, by its rank in the whole job."""
    if not dist.is_initialized():
        return {0: mine}
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    everyones = [None] * len(ranks)
    dist.all_gather_object(everyones, mine, group=group)
    return dict(zip(ranks, everyones))

def raise_first(mine, group):  # on all ranks
    if found := {rank: found for rank, found in gathered(mine, group).items() if found}:
        raise Wrong("rank {}: {}".format(*next(iter(found.items()))))

def parameters(model, names=None, optimizer=None):
    """Each parameter by name, and what the optimizer keeps for it."""
    for name, p in model.named_parameters():
        name = WRAPPERS.sub("", name)
        if (name := names(name) if names else name) is not None:
            yield name, p
            kinds = sorted((optimizer.state.get(p) or {}).items()) if optimizer else ()
            yield from ((f"{name}, {kind}", value) for kind, value in kinds if isinstance(value, torch.Tensor))

def whole(tensor):
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()

def part(tensor):
    """This rank's numbers of a tensor, where they begin in the whole, and the whole's shape."""
    tensor = tensor.detach()
    if not isinstance(tensor, DTensor):
        return tensor, (0,) * tensor.dim(), tuple(tensor.shape)
    if any(placement.is_partial() for placement in tensor.placements):  # ranks have summands of it
        tensor = tensor.redistribute(placements=[Replicate() if one.is_partial() else one for one in tensor.placements])
    chunk, = tensor.__create_chunk_list__()  # what distributed checkpoints ask it, too
    return tensor.to_local(), tuple(chunk.offsets), tuple(tensor.shape)

def hash_of(local, offsets, shape):
    """The sum, which wraps around, of each number's bits times an odd number made from its place in the whole. Computed where the
    tensor is, without waiting. Hashes of parts add up to the whole's, however it is cut."""
    bits = local.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[local.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=local.device)
    rows = max(1, 2**20 // max(1, math.prod(bits.shape[1:])))  # as many at once as need little memory
    for first in range(0, len(bits) if bits.dim() else 0, rows):
        some, places = bits[first : first + rows], torch.zeros_like(total)
        for dim, size in enumerate(some.shape):
            begin = offsets[dim] + (0 if dim else first)
            places = places.unsqueeze(-1) * shape[dim] + torch.arange(begin, begin + size, device=local.device)
        odd = places.mul_(-7046029254386353131)
        total += odd.bitwise_xor_(odd >> 29).mul_(2).add_(1).mul_(some).sum()
    return total if bits.dim() else total + bits

def seen(named, group):
    """By name and rank, what a rank holds of a tensor: where it begins, its size, the whole's shape, the hash."""
    places, hashes = [], []
    for name, (local, offsets, shape) in ((name, part(tensor)) for name, tensor in named):
        places.append((name, offsets, tuple(local.shape), shape))
        hashes.append(hash_of(local, offsets, shape))
    device = next((one.device for one in hashes if one.device.type != "cpu"), "cpu")
    hashes = torch.stack([one.to(device) for one in hashes]).tolist() if hashes else []  # the one wait for a GPU
    by_name = {}
    for rank, mine in gathered([(*place, number) for place, number in zip(places, hashes)], group).items():
        for name, *rest in mine:
            by_name.setdefault(name, {})[rank] = rest
    return by_name


def replicas(model, group=None, optimizer=None, names=None, everywhere=True):
    """lab03: ranks that hold the same part of a parameter, or of its moments, hold the same bits. Every rank must have every
    parameter, unless `everywhere=False` (a pipeline's stages)."""
    by_name, ranks = seen(parameters(model, names, optimizer), group), gathered(None, group)
    for name, of in by_name.items():
        if everywhere and (without := [rank for rank in ranks if rank not in of]):
            raise Wrong(f"rank {without[0]}: has no {name}, which rank {min(of)} has")
        by_place = {}
        for rank, (offsets, sizes, _, number) in of.items():
            by_place.setdefault((offsets, sizes), {}).setdefault(number, []).append(rank)
        for versions in by_place.values():
            if len(versions) > 1:
                most, *_, odd = sorted(versions.values(), key=len, reverse=True)
                raise Wrong(f"rank {odd[0]}: {name} has other bits than on rank {most[0]}: {len(versions)} versions on {len(of)} ranks")

def hashes(model, group=None, optimizer=None, names=None):
    """A hash of each whole parameter and moment. The number of ranks, and how they cut it, do not change it."""
    by_name = seen(parameters(model, names, optimizer), group)
    return {name: sum({rest[0]: rest[3] for rest in of.values() if math.prod(rest[1])}.values()) % 2**64 for name, of in by_name.items()}

def kept(noted, model, group=None, optimizer=None, names=None):
    """lab09: after a load, on any number of ranks, parameters and moments have the `hashes` noted at the save."""
    now = hashes(model, group, optimizer, names)
    for name in noted | now:
        if noted.get(name) != now.get(name):
            raise Wrong(f"all ranks: {name} {'is new' if name not in noted else 'has other bits' if name in now else 'is missing'}")

def shards(model, group=None, original=None, parts=None, names=None):
    """lab04: the ranks' shards make up each parameter, each number in one shard; copies of a shard are fine. `original`, the model
    on the meta device, say, tells which parameters there are; `parts`, among how many ranks each is cut. Returns the padding by
    name: how many numbers shards of equal size would have too many."""
    by_name, padding = seen(parameters(model, names), group), {}
    shapes = {name: of[min(of)][2] for name, of in by_name.items()}
    right = {name: tuple(p.shape) for name, p in parameters(original)} if original is not None else shapes
    for name in right | shapes:
        if right.get(name) != shapes.get(name):
            raise Wrong(f"all ranks: {name} has the shape {right.get(name)}, and the shards are those of {shapes.get(name)}")
    for name, shape in shapes.items():
        numel, owners = math.prod(shape), {}
        for rank, (offsets, sizes, *_) in by_name[name].items():
            owners.setdefault((offsets, sizes), []).append(rank)
        filled = sorted((place for place in owners if math.prod(place[1])), key=lambda place: math.prod(place[1]))
        for (at, sizes), (other, lengths) in itertools.combinations(filled, 2):
            if all(a < b + m and b < a + n for a, b, n, m in zip(at, other, sizes, lengths)):
                raise Wrong(f"rank {owners[at, sizes][0]}: its part of {name} overlaps with that of rank {owners[other, lengths][0]}")
        if (held := sum(math.prod(sizes) for _, sizes in filled)) != numel:
            raise Wrong(f"all ranks: {name} has {numel} numbers, and the shards {held}")
        largest, holders = filled[-1][1], owners[filled[-1]]
        if parts and shape:
            rows = next((whole for whole, mine in zip(shape, largest) if mine < whole), shape[0])
            if len(filled) < (least := math.ceil(rows / math.ceil(rows / parts))):
                raise Wrong(f"rank {holders[0]}: holds {math.prod(largest)} of the {numel} numbers of {name}: {len(filled)} parts, not {least}")
        if extra := math.prod(largest) * len(by_name[name]) // len(holders) - numel:
            padding[name] = extra
    return padding

def gradients(model, reference, loss, batch, group=None, allowed=1e-3, names=None):
    """lab02, lab03, lab13: the gradients are those of one device that has all ranks' batches. For small models, and before the
    gradients are clipped: that would hide a wrong factor. `reference` is the whole model, not parallel; `loss(reference, batches)`
    is what the job means to minimise, from a list of the ranks' batches."""
    mine = {name: (whole(p).cpu(), torch.zeros(p.shape) if p.grad is None else whole(p.grad).cpu()) for name, p in parameters(model, names)}
    of, theirs = gathered(({name: value for name, (value, _) in mine.items()}, batch), group), dict(parameters(reference))
    for name, value in (pair for weights, _ in of.values() for pair in weights.items()):
        theirs[name].data.copy_(value)
    reference.zero_grad()
    loss(reference, [batch for _, batch in of.values()]).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in theirs.values() if p.grad is not None]).item()
    worst, found = 0.0, None
    for name, (_, gradient) in mine.items():
        right = (torch.zeros(gradient.shape) if theirs[name].grad is None else theirs[name].grad.cpu()).double()
        off = (gradient.double() - right).norm().item() / max(right.norm().item(), 1e-4 * norm)
        if not off <= allowed and not found:
            times = (gradient.double() * right).sum() / right.square().sum()
            found = f"the gradient of {name} is off by {off:.2g} of its size; it is {times:.3g} times the mean of the ranks'"
        worst = max(worst, off)
    raise_first(found, group)
    return worst

def norm(value, model, group=None, most=None, allowed=1e-3, names=None):
    """lab06, lab13: the norm by which each rank clips is that of all ranks' gradients; of copies, one counts. Before the gradients
    are clipped; after that, if `most` says to which norm."""
    places, squares = [], []
    for name, (local, offsets, _) in ((name, part(p.grad)) for name, p in parameters(model, names) if p.grad is not None):
        places.append((name, offsets, tuple(local.shape)))
        squares.append(torch.linalg.vector_norm(local, dtype=torch.float64).square())
    mine = dict(zip(places, torch.stack(squares).tolist())) if squares else {}
    now = math.sqrt(sum({place: one for of in gathered(mine, group).values() for place, one in of.items()}.values()))
    value = float(whole(value) if isinstance(value, torch.Tensor) else value)
    expected = min(value, most or value)
    off = not abs(now - expected) <= allowed * expected
    raise_first(off and f"clips by a norm of {value:.6g}; all gradients have {now:.6g}{' after it' if most else ''}", group)
    return now

@contextlib.contextmanager
def one_decision(optimizer, group=None):
    """lab08: `with one_decision(optimizer): scaler.step(optimizer)`: all ranks take the step, or all skip it."""
    calls, fused = [], getattr(optimizer, "_step_supports_amp_scaling", False)  # a fused step decides in its kernel
    bits = lambda: [int(hash_of(*part(p))) for its in optimizer.param_groups for p in its["params"]] if fused else len(calls)
    before, hook = bits(), optimizer.register_step_post_hook(lambda *_: calls.append(True))
    yield
    took = gathered(bits() != before, group)
    hook.remove()
    if len(set(took.values())) > 1:
        take, skip = ([rank for rank in took if took[rank] == one] for one in (True, False))
        raise Wrong(f"rank {skip[0]}: skips the step of all its parameters, which rank {take[0]} takes")

def every_gradient(model, optimizer, group=None, names=None):
    """After the backward pass: each parameter to be trained has a gradient, and the optimizer has it, and no other."""
    held = {p for its in optimizer.param_groups for p in its["params"]}
    trained = [(name, p) for name, p in parameters(model, names) if p.requires_grad]
    found = [f"{name} has no gradient" for name, p in trained if p.grad is None] + [f"the optimizer lacks {name}" for name, p in trained if p not in held]
    if found and (strangers := held - set(model.parameters())):
        found = [f"the optimizer has {len(strangers)} parameters that the model has not, in place of {found[-1].split()[-1]}: made too early?"]
    raise_first(found and found[0], group)

def batches(rows, group=None, total=None, same=False):
    """lab03, lab07: no two data ranks have the same sequence; `total`: how many there are in all, or the global batch itself.
    lab05, with `same=True`: ranks that share a replica (tensor, pipeline, context) have the same batch."""
    row_hashes = lambda rows: [int(hash_of(row, (0,) * row.dim(), row.shape)) for row in rows]
    of, owner = gathered(row_hashes(rows), group), {}
    for rank, mine in of.items():
        if same and mine != of[min(of)]:
            raise Wrong(f"rank {rank}: its batch is not that of rank {min(of)}")
        for i, number in enumerate(mine):
            if owner.setdefault(number, rank) != rank and not same:
                raise Wrong(f"rank {rank}: its sequence {i} is in the batch of rank {owner[number]}, too")
    if isinstance(total, torch.Tensor) and (strangers := set(owner) ^ set(row_hashes(total))):
        raise Wrong(f"rank {next((owner[one] for one in strangers if one in owner), 'none')}: the ranks' batches are not the global batch")
    if total is not None and (most := total if isinstance(total, int) else len(total)) != (count := sum(map(len, of.values()))):
        raise Wrong(f"all ranks: their batches have {count} sequences, not {most}")

def causal(forward, tokens, at, positions=None, group=None, allowed=1e-5):
    """lab12: with another token at `at`, no logit before it changes, and one at it does. Returns the positions that do.
    `forward(tokens)` gives all positions' logits, or those of this rank's `positions`. Dropout must be off."""
    changed, low = tokens.clone(), tokens.min()
    changed[:, at] = torch.where(tokens[:, at] == low, low + 1, low)
    with torch.no_grad():
        before, after = (whole(forward(some)).float() for some in (tokens, changed))
    moved = ((before - after).abs() > allowed * before.abs().max()).flatten(2).any(2).any(0).nonzero().flatten().tolist()
    moved = moved if positions is None else [int(positions[i]) for i in moved]
    early = [place for place in moved if place < at]
    raise_first(early and f"the token at {at} changes the logits at {early[0]}, before it", group)
    if at not in (everyones := sorted({place for mine in gathered(moved, group).values() for place in mine})):
        raise Wrong(f"all ranks: the token at {at} does not change the logits there")
    return everyones


class Noting(TorchDispatchMode):
    """Notes what runs while it is open, in `made`."""

    def __init__(self, made=()):
        super().__init__()
        self.made = list(made)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.note(function, args, kwargs, result)
        return result


class Calls(Noting):
    """lab01, lab02, lab05: calls and messages: operation, the group's ranks, bytes. `expect`: what a right run `made` on this rank."""

    KINDS = ("reduce_scatter", "allgather", "allreduce", "alltoall", "broadcast", "send", "recv", "gather", "scatter", "reduce", "barrier")

    def note(self, function, args, kwargs, result):
        word = function.__name__.replace("all_", "all").replace("allto_", "allto").replace("reducescatter", "reduce_scatter")
        if "c10d" in function.namespace and (kind := next((kind for kind in self.KINDS if kind in word), None)):
            leaves = tree_leaves((args, kwargs, result))
            size = max((x.numel() * x.element_size() for x in leaves if isinstance(x, torch.Tensor)), default=0)
            self.made.append((kind, next(filter(None, map(self.ranks, leaves)), ()), size))

    @staticmethod
    def ranks(one):
        """The ranks, if this argument of a call is a group, or the name of one."""
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            one = dist.ProcessGroup.unbox(one)
        if isinstance(one, str):
            one = next((group for group, name in dist.distributed_c10d._world.pg_names.items() if name == one), None)
        return tuple(dist.get_process_group_ranks(one)) if isinstance(one, dist.ProcessGroup) else None

    def table(self):
        """Calls and bytes, by operation and group."""
        calls = [(key, [size for *other, size in self.made if tuple(other) == key]) for key in {one[:2]: 0 for one in self.made}]
        return {key: (len(sizes), sum(sizes)) for key, sizes in calls}

    def expect(self, noted, group=None, order=False):
        now, then = self.table(), Calls(noted).table()
        found = [f"{now.get(key, (0, 0))} calls and bytes of {key[0]} among ranks {key[1]}, not {then.get(key, (0, 0))}"
                 for key in then | now if now.get(key) != then.get(key)]
        if order:
            found += [f"call {i + 1} is {one}, not {other}" for i, (one, other) in enumerate(zip(self.made, noted)) if one != other]
        raise_first(found and found[0], group)


class Masks(Noting):
    """Dropout's masks. Where ranks hold the same activations (tensor ranks), they must be equal; where they hold others (data
    ranks), not. A fused attention's dropout is not seen."""

    def note(self, function, args, kwargs, result):
        if function.__name__.split(".")[0] in ("native_dropout", "bernoulli_", "bernoulli"):
            self.made.append(int(hash_of(*part(result[1] if isinstance(result, tuple) else result))))

    def check(self, equal, group=None, which=slice(None)):  # `which` of them, as they ran
        before = {}
        for rank, mine in gathered(self.made[which], group).items():
            for i, mask in enumerate(mine):
                other = before.setdefault(i if equal else (i, mask), (rank, mask))
                if other[1] != mask if equal else other[0] != rank:
                    raise Wrong(f"rank {rank}: dropout {i} drops {'others than' if equal else 'the same as'} on rank {other[0]}")
