"""What the scripts beside this file share: the labs' initial weights and batches, a GPT, and the start of the ranks.

Both sides of a comparison must begin with the same numbers, and no file carries them from one to the other. The labs' random
numbers are a function of seed, name and index (src/tensor/random.rs); `Stream` is that function in numpy, so PyTorch draws the
labs' weights and batches for itself. `compare.py` checks these weights against a file that lab09 saved.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import socket
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PLAY = pathlib.Path(__file__).resolve().parents[2] / "data" / "play.txt"
BROKEN = set()  # mistakes that `compare.py --broken` makes on purpose
MADE = {}  # each optimizer's model, for the checks of `compare.py --broken`


class Stream:
    """Random numbers by index: SplitMix64's mixing function, applied to a key and an index."""

    def __init__(self, seed, name):
        self.key = mix(np.uint64(seed))
        for byte in name.encode():
            self.key = self.branch(byte).key

    def branch(self, i):
        new = Stream.__new__(Stream)
        new.key = mix(self.key ^ mix(np.uint64((i + 0x5851F42D4C957F2D) % 2**64)))
        return new

    def bits(self, i):
        return mix(self.key + np.asarray(i, np.uint64) * np.uint64(0x9E3779B97F4A7C15))

    def uniform32(self, i):
        return (self.bits(i) >> np.uint64(40)).astype(np.float32) / np.float32(2**24)

    def below(self, n, i):
        return [int(bits) * n >> 64 for bits in np.atleast_1d(self.bits(i))]

    def normal(self, i):
        pair = i & ~np.uint64(1)
        first, second = ((self.bits(k) >> np.uint64(11)).astype(np.float64) / 2**53 for k in (pair, pair + np.uint64(1)))
        radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * np.pi * second
        return radius * np.where(i == pair, np.cos(angle), np.sin(angle))


def mix(x):
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


@dataclasses.dataclass
class Job:
    """A lab's run: what both programs are told."""

    ranks: int
    layers: int = 2
    heads: int = 2
    embd: int = 64
    block: int = 32
    batch: int = 4  # sequences of a rank's micro-batch
    grad_accum: int = 1
    steps: int = 5
    lr: float = 1e-3
    seed: int = 1337
    sampler: str = "partition"
    data_ranks: int = 0  # where not all ranks draw data of their own

    def flags(self, *leave_out):
        """The run as a lab's flags. The learning rate is constant."""
        flags = {name: getattr(self, name.replace("-", "_")) for name in
                 ("ranks", "layers", "heads", "embd", "block", "batch", "grad-accum", "steps", "sampler", "lr")}
        flags |= {"min-lr": self.lr, "warmup": 1, "data": PLAY}
        return [str(word) for name, value in flags.items() if name not in leave_out for word in ("--" + name, value)]

    def weights(self):
        """The labs' initial weights, by the labs' names."""
        h, rows = self.embd, len(letters())
        shapes = {"wte.weight": (rows, h), "wpe.weight": (self.block, h)}
        for i in range(self.layers):
            sizes = {"ln1": (h,), "qkv": (3 * h, h), "proj": (h, h), "ln2": (h,), "fc": (4 * h, h), "out": (h, 4 * h)}
            shapes |= {f"blocks.{i}.{part}.weight": shape for part, shape in sizes.items()}
        shapes["lnf.weight"] = (h,)
        return {name: self.initial(name, shape) for name, shape in shapes.items()}

    def initial(self, name, shape):
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        std = np.float32(0.02)
        if name.endswith(("proj.weight", "out.weight")):  # they write into the residual stream
            std /= np.sqrt(np.float32(2 * self.layers))
        numbers = Stream(self.seed, name).normal(np.arange(np.prod(shape), dtype=np.uint64))
        return (std * numbers.astype(np.float32)).reshape(shape)

    def batch_of(self, rank, step, micro=0):
        """Inputs and targets of a micro-batch: random places of the rank's part of the play, or of the whole."""
        ranks = self.data_ranks or self.ranks
        tokens = text()
        numbers = np.arange(self.batch, dtype=np.uint64)
        if self.sampler == "partition":
            tokens = tokens[rank * len(tokens) // ranks : (rank + 1) * len(tokens) // ranks]
        else:  # "global": the sequences of one batch are numbered over all ranks
            numbers += np.uint64(rank * self.batch)
        stream = Stream(self.seed, "batches").branch(0).branch(step).branch(micro)
        starts = stream.below(len(tokens) - self.block, numbers)
        cut = lambda shift: torch.stack([tokens[start + shift : start + shift + self.block] for start in starts])
        return cut(0), cut(1)


def letters():
    return sorted(set(PLAY.read_text()))


def text():
    """The training split of the play, as tokens."""
    play, number = PLAY.read_text(), {letter: i for i, letter in enumerate(letters())}
    return torch.tensor([number[letter] for letter in play[: len(play) * 9 // 10]])


class Attention(nn.Module):
    """Causal attention. The labs' matrix `qkv` is three here: then its rows can be cut without knowing the heads."""

    def __init__(self, h, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj = (nn.Linear(h, h, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (one(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(-2))

    @property
    def width(self):
        return self.q.in_features // self.heads


class Mlp(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.fc, self.out = nn.Linear(h, 4 * h, bias=False), nn.Linear(4 * h, h, bias=False)

    def forward(self, x):
        return self.out(F.gelu(self.fc(x)))


class Block(nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(h, bias=False), nn.LayerNorm(h, bias=False)
        self.attention, self.mlp = Attention(h, heads), Mlp(h)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """The labs' GPT with their initial weights; one matrix serves as embedding and as head."""

    def __init__(self, job, weights=None):
        super().__init__()
        h = job.embd
        self.wte, self.wpe = nn.Embedding(len(letters()), h), nn.Embedding(job.block, h)
        self.blocks = nn.ModuleDict({str(i): Block(h, job.heads) for i in range(job.layers)})
        self.lnf, self.head = nn.LayerNorm(h, bias=False), nn.Linear(h, len(letters()), bias=False)
        self.head.weight = self.wte.weight
        self.part = 0, 1  # with sequence parallelism, a rank looks up its part of the positions
        named = dict(self.named_parameters())
        with torch.no_grad():
            for name, value in ours(weights or job.weights()).items():
                named[name].copy_(value)
            if "weight" in BROKEN:
                named["blocks.0.mlp.out.weight"] *= 1.01

    def forward(self, tokens):
        part, parts = self.part
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]).chunk(parts)[part])
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.lnf(x))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def ours(weights):
    """Tensors of a lab (weights, or moments of Adam) by the names that they have here."""
    here = {}
    for name, value in weights.items():
        value = torch.from_numpy(np.array(value))
        start, part = name.removesuffix(".weight").rpartition(".")[::2]
        if part == "qkv":
            for one, rows in zip("qkv", value.chunk(3)):
                here[f"{start}.attention.{one}.weight"] = rows
        else:
            into = {"proj": "attention.proj", "fc": "mlp.fc", "out": "mlp.out"}.get(part, part)
            here[f"{start}.{into}.weight".lstrip(".")] = value
    return here


def adamw(model, lr):
    """AdamW as the labs have it: weight decay only on matrices."""
    matrices, gains = ([p for p in model.parameters() if (p.dim() == 2) == two] for two in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    return made(model, torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, betas=(0.9, 0.99), eps=1e-8))


def made(model, optimizer):
    MADE[optimizer] = model
    return optimizer


class Calls(TorchDispatchMode):
    """Counts collective calls while it is open: `of` has the kind of each, and the bytes of the whole tensor."""

    KINDS = {"allreduce": "all-reduce", "all_reduce": "all-reduce", "allgather": "all-gather", "all_gather": "all-gather",
             "reduce_scatter": "reduce-scatter"}

    def __init__(self):
        super().__init__()
        self.of = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.namespace in ("c10d", "_c10d_functional", "c10d_functional"):
            kind = next((kind for part, kind in self.KINDS.items() if part in function.__name__.lstrip("_")), None)
            if kind:
                tensors = [x for x in tree_leaves((args, result)) if isinstance(x, torch.Tensor)]
                self.of.append((kind, max(x.numel() * x.element_size() for x in tensors)))
        return result

    def sent(self, ranks):
        """The bytes that a rank sends in a ring."""
        return sum(size * (ranks - 1) / ranks * (2 if kind == "all-reduce" else 1) for kind, size in self.of)


def counting(batches, calls):
    """The batches, one after the other; `calls` counts during the last one's step."""
    *first, last = batches
    yield from first
    with calls:
        yield last


def whole(tensor):
    """The tensor, if ranks share it: DTensor's parts put together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def clip(model, most=1.0):
    """clip_grad_norm_ for a model in which only some parameters are DTensors."""
    norm = torch.nn.utils.get_total_norm([whole(p.grad) for p in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm, foreach=False)
    return norm.item()


def trained(model):
    """The weights, whole on every rank; a matrix that serves twice is there once."""
    return {name: whole(value.detach()) for name, value in model.named_parameters()}


def mean(x):
    """The mean over all ranks of a number that each of them has."""
    x = x.detach().clone()
    dist.all_reduce(x)
    return x.item() / dist.get_world_size()


def read_safetensors(path):
    """A file of tensors in f32: eight bytes for the length of a header in JSON, the header, the numbers."""
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        first, last = (start + offset for offset in tensor["data_offsets"])
        tensors[name] = np.frombuffer(data[first:last], "<f4").reshape(tensor["shape"])
    return tensors


def launch(run, ranks, *arguments, broken=()):
    """Runs `run(*arguments)` on that many ranks, and returns what rank 0's returns. torchrun has started its ranks already."""
    if "RANK" in os.environ:
        return one_rank(int(os.environ["RANK"]), run, int(os.environ["WORLD_SIZE"]), arguments, broken, None)
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        result = pathlib.Path(folder) / "result"
        how = "fork" if sys.platform == "linux" else "spawn"  # a fork need not import PyTorch again
        mp.start_processes(one_rank, (run, ranks, arguments, broken, result), ranks, start_method=how)
        return torch.load(result)


def one_rank(rank, run, ranks, arguments, broken, result):
    torch.set_num_threads(1)
    BROKEN.update(broken)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    returned = run(*arguments)
    if rank == 0 and result:
        torch.save(returned, result)
    dist.barrier()
    dist.destroy_process_group()
    return returned if rank == 0 else None


def main(run, ranks):
    """What a script does that is run by itself: it prints what rank 0's part returns."""
    argparse.ArgumentParser(description=sys.modules["__main__"].__doc__.splitlines()[0]).parse_args()
    for name, value in (launch(run, ranks) or {}).items():
        if isinstance(value, dict):
            value = f"{sum(tensor.numel() for tensor in value.values()):,} numbers"
        elif isinstance(value, list) and isinstance(value[0], float):
            value = " ".join(f"{number:.6f}" for number in value)
        elif isinstance(value, list) and isinstance(value[0], str):
            value = "".join(f"\n  rank {rank}  {one}" for rank, one in enumerate(value))
        print(f"{name:14} {value}")
