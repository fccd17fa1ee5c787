#!/usr/bin/env python3
"""PyTorch's distributed checkpoint (DCP) beside the tool `checkpoint`: what each writes, the other reads, to the last bit.

All of it:            dcp.py --bin target/debug
A folder to look at:  dcp.py --make FOLDER      (wrote the folder `saved` and expected.json beside this file; torch 2.15.0)

Four ranks as 2 x 2: tensor parallelism cuts `up` by rows and `down` by columns, and FSDP2 cuts every part again, by rows. So `up`
has two cuts of one dimension, and no size is divided evenly. `norm` is cut by FSDP2 alone, and both tensor ranks have it: it is
saved once. `norm` and `down` are frozen, so they have no moments.
"""

import argparse
import hashlib
import json
import logging
import pathlib
import subprocess
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(3, bias=False)
        self.up = torch.nn.Linear(3, 6, bias=False)
        self.down = torch.nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def trained(mesh):
    """A model after two steps, with its optimizer."""
    torch.manual_seed(9)
    model = Block()
    model.norm.weight.requires_grad_(False)
    model.down.weight.requires_grad_(False)
    if mesh.ndim == 2:
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for step in range(2):
        model(torch.arange(12.0).reshape(4, 3) + step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def state(mesh):
    """All kinds of entries: parts, whole tensors of other types and strides, scalars, lists, a name with a dot."""
    weights, optimizer = get_state_dict(*trained(mesh))
    extra = {
        "step": 2,
        "rate": 0.1,
        "name": "block",
        "done": False,
        "none": None,
        "list": [7, {"a.b": torch.ones(2, dtype=torch.bfloat16)}],
        "turned": torch.arange(6, dtype=torch.int64).reshape(2, 3).t(),
        "empty": torch.zeros(0, 3),
        "shape": torch.Size([1, 2]),
    }
    return {"model": weights, "optimizer": optimizer, "extra": extra}


def save(rank, folder, ranks, small=False):
    start(rank, folder, ranks)
    saved = state(mesh_of(ranks))
    if small:
        del saved["optimizer"]["param_groups"]
    dcp.save(saved, checkpoint_id=folder)
    end()


def start(rank, folder, ranks):
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # on two cuts of one dimension, which are gathered one after the other
    dist.init_process_group("gloo", init_method=f"file://{folder}.ranks", rank=rank, world_size=ranks)


def end():
    dist.barrier()
    dist.destroy_process_group()


def mesh_of(ranks):
    if ranks == 4:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))


def load(rank, folder, ranks, wanted):
    """Loads into a model that was started otherwise, and compares every tensor with what was saved."""
    start(rank, folder, ranks)
    mine = state(mesh_of(ranks))
    for _, tensor in tensors(mine):
        tensor.zero_()
    mine["extra"].pop("shape")  # checkpoint leaves it out, and says so
    mine["extra"] |= {"step": 0, "rate": 0.0, "name": "", "done": True, "none": 1}
    dcp.load(mine, checkpoint_id=folder)
    found = {name: sha256(whole(tensor)) for name, tensor in tensors(mine)}
    assert found == wanted, {name for name in wanted if wanted[name] != found.get(name)}
    extra = mine["extra"]
    assert [extra[key] for key in ("step", "rate", "name", "done", "none")] == [2, 0.1, "block", False, None], extra
    assert extra["list"][0] == 7
    end()


def tensors(tree, name=""):
    """Every tensor in nested dictionaries and lists, with DCP's name of it."""
    if isinstance(tree, torch.Tensor):
        yield name, tree
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from tensors(value, f"{name}.{key}" if name else str(key))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def sha256(tensor):
    return hashlib.sha256(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()


def launch(work, ranks, *args):
    pathlib.Path(f"{args[0]}.ranks").unlink(missing_ok=True)
    torch.multiprocessing.spawn(work, (args[0], ranks, *args[1:]), ranks)
    pathlib.Path(f"{args[0]}.ranks").unlink(missing_ok=True)


def read(folder):
    """PyTorch's own way to the whole tensors."""
    with tempfile.TemporaryDirectory() as side:
        dcp_to_torch_save(folder, f"{side}/whole.pt")
        return dict(tensors(torch.load(f"{side}/whole.pt", weights_only=False)))


def read_safetensors(path):
    """The format is three lines long, so this needs no package."""
    with open(path, "rb") as file:
        entries = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        elements = bytearray(file.read())
    names = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64}
    entries.pop("__metadata__")
    return {
        name: torch.frombuffer(elements, dtype=torch.uint8)[slice(*about["data_offsets"])].clone().view(names[about["dtype"]]).reshape(about["shape"])
        for name, about in entries.items()
    }


def expected(folder):
    about = lambda tensor: {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape), "sha256": sha256(tensor)}
    return {name: about(tensor) for name, tensor in read(folder).items()}


def compare(program):
    def run(*words):
        subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as side:
        side = pathlib.Path(side)
        for ranks, others in [(4, [2, 1]), (3, [4])]:
            saved = side / f"saved{ranks}"
            launch(save, ranks, str(saved))
            wanted = read(saved)
            run("convert", saved, side / f"whole{ranks}", "--to", "safetensors")
            found = read_safetensors(side / f"whole{ranks}" / "model.safetensors")
            assert wanted.keys() == found.keys()
            for name, tensor in wanted.items():
                assert (tensor.dtype, tensor.shape) == (found[name].dtype, found[name].shape), name
                assert sha256(tensor) == sha256(found[name]), name
            sums = {name: sha256(tensor) for name, tensor in wanted.items()}
            for way, source, others in [("again", saved, others[:1]), ("back", side / f"whole{ranks}", others)]:
                made = side / f"{way}{ranks}"
                run("convert", source, made, "--to", "dcp")
                run("diff", source, made)
                for other in others:
                    launch(load, other, str(made), sums)
            print(f"saved by {ranks} ranks: {len(wanted)} tensors as PyTorch reads them, loaded on {others} ranks to the last bit")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--make", type=pathlib.Path)
    args = parser.parse_args()
    if args.make:
        launch(save, 4, str(args.make.resolve()), True)
        args.make.with_name("expected.json").write_text(json.dumps(expected(args.make), indent=1) + "\n")
    if args.bin:
        compare(args.bin.resolve() / "checkpoint")
