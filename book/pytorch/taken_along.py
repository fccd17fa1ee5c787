"""The checks of take_along.py in the loops beside this file: right ones on one to four ranks, and each mistake.

What they find:       python book/pytorch/compare.py --broken
What hashes cost:     python book/pytorch/taken_along.py

The loops stay as the book prints them. A hook calls the checks before the optimizer's step, and mistakes are made from outside:
those that `compare.py` knows, and those in `MISTAKES` below.
"""

import contextlib
import copy
import functools
import pathlib
import re
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lab01
import lab02
import lab03
import lab04
import lab05
import lab06
import lab07
import lab08
import lab09
import lab12
import lab13
import one_device
import shared
import take_along
from shared import GPT, MADE, cross_entropy

CHECKS = ["replicas", "kept", "shards", "gradients", "norm", "one_decision", "every_gradient", "batches", "causal", "Calls", "Masks"]
ATTEND = shared.Attention.forward
RANK = dist.get_rank


# ---- The checks, called from a loop that does not know them

class Checks:
    """Calls the checks in the first steps of each optimizer, and keeps what each check found first."""

    def __init__(self, loop, noted):
        self.loop, self.noted, self.found = loop, noted, {}
        self.steps, self.rows, self.norm = {}, {}, None
        self.calls = take_along.Calls()

    @contextlib.contextmanager
    def of(self, check):
        before = len(self.calls.made)
        try:
            yield
        except take_along.Wrong as wrong:
            self.found.setdefault(check, str(wrong))
        finally:
            del self.calls.made[before:]  # the check's own

    def before_step(self, optimizer, *_):
        model, loop = MADE[optimizer], self.loop
        step = self.steps[optimizer] = self.steps.get(optimizer, 0) + 1
        rows, value = self.rows.pop(optimizer, None), self.norm
        if step > 2:
            return
        names, original = loop.names(model), unbroken(loop.original)
        with self.of("replicas"):
            take_along.replicas(model, None, optimizer, names, everywhere=loop.everywhere)
        with self.of("kept"):
            if step == 1:
                take_along.kept(take_along.hashes(original), model, names=names)
        with self.of("shards"):
            take_along.shards(model, None, original, loop.parts(), names)
        with self.of("every_gradient"):
            take_along.every_gradient(model, optimizer, None, names)
        with self.of("norm"):
            if value is not None:
                take_along.norm(value, model, None, 1.0, names=names)
        if value is None:
            self.before_clipping(model, step)
        with self.of("batches"):
            if rows and loop.groups:
                data, replica = loop.groups()
                if data:
                    take_along.batches(torch.cat(rows), data)
                if replica:
                    take_along.batches(torch.cat(rows), replica, same=True)

    def before_clipping(self, model, step):
        if step <= 2:
            with self.of("gradients"):
                batch, original = unbroken(self.loop.batch, step - 1), unbroken(self.loop.original)
                take_along.gradients(model, original, self.loop.loss, batch, names=self.loop.names(model))

    @contextlib.contextmanager
    def watching(self):
        """What the loops call is wrapped: it notes what the checks need to know."""
        clip, with_norm, made, scaled = (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grads_with_norm_, shared.made,
                                         torch.amp.GradScaler.step)

        def now():
            optimizer, model = list(MADE.items())[-1]
            self.before_clipping(model, self.steps.get(optimizer, 0) + 1)

        def noting_clip(*a, **k):
            now()
            self.norm = clip(*a, **k)
            return self.norm

        def noting_norm(parameters, most, norm, **k):
            now()
            self.norm = norm
            return with_norm(parameters, most, norm, **k)

        def noting_model(model, optimizer):
            model.register_forward_pre_hook(lambda _, inputs: self.rows.setdefault(optimizer, []).append(inputs[0].detach().clone()))
            return made(model, optimizer)

        def step(scaler, optimizer, *a, **k):  # a rank that skips calls no hook
            self.before_step(optimizer)
            with self.of("one_decision"), take_along.one_decision(optimizer):
                return scaled(scaler, optimizer, *a, **k)

        torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grads_with_norm_ = noting_clip, noting_norm
        shared.made = lab02.made = noting_model
        torch.amp.GradScaler.step = step
        hook = None if self.loop.scaled else register_optimizer_step_pre_hook(self.before_step)
        with self.calls:
            yield
        if hook:
            hook.remove()

    def afterwards(self, returned):
        if self.loop.causal:
            with self.of("causal"):
                self.loop.causal(list(MADE.values())[-1], returned)
        if self.noted:
            with self.of("Calls"):
                self.calls.expect(self.noted[RANK()], order=True)


def unbroken(what, *arguments):
    """What the loop should have begun with."""
    broken = set(shared.BROKEN)
    shared.BROKEN.clear()
    try:
        return what(*arguments)
    finally:
        shared.BROKEN.update(broken)


def checked(loop, name, ranks, mistake, noted):
    """Runs a loop with the checks. Returns what they found, and all ranks' calls."""
    torch.manual_seed(0)
    loop.prepare(ranks)
    if change := MISTAKES.get(name, {}).get(mistake):
        change()
    checks = Checks(loop, noted)
    if loop.own:
        loop.own(checks)
    else:
        with checks.watching():
            returned = loop.run()
        checks.afterwards(returned)
    return checks.found, take_along.gathered(checks.calls.made)


# ---- The loops: what is right in each

class Loop:
    """What the checks must know of one of the loops: its lab's file, and what differs from plain data parallelism."""

    everywhere, scaled, causal, own, arguments, ranks = True, False, None, None, (), (1, 2, 3, 4)

    def __init__(self, lab, **other):
        self.lab = lab
        vars(self).update(other)

    @property
    def job(self):
        return self.lab.JOB

    def prepare(self, ranks):
        self.job.ranks = ranks
        self.job.steps = min(self.job.steps, 3)

    def run(self):
        return self.lab.run(*self.arguments)

    def names(self, model):
        return None

    def parts(self):
        return None

    def original(self):
        return GPT(self.job)

    def batch(self, step):
        rank = RANK() if not self.job.data_ranks else RANK() * self.job.data_ranks // self.job.ranks
        return [self.job.batch_of(rank, step, micro) for micro in range(self.job.grad_accum)]

    def loss(self, model, batches):
        losses = [cross_entropy(model(x), y) for batch in batches for x, y in batch]
        return sum(losses) / len(losses)

    def groups(self):
        """The ranks that have batches of their own, and those that have the same one."""
        return dist.group.WORLD, None


class Lab01(Loop):
    """No model: what the ranks add up is the batch."""

    ranks, groups = (4,), None

    def prepare(self, ranks):
        pass

    def own(self, checks):
        real, total = lab01.all_reduce, torch.stack([torch.arange(1, lab01.RANKS + 1) * 10**rank for rank in range(lab01.RANKS)])

        def noting(mine):
            with checks.of("batches"):
                take_along.batches(mine[None].long(), None, total)
            return real(mine)

        lab01.all_reduce = noting
        with checks.calls:
            lab01.run()
        checks.afterwards(None)


class Lab02(Loop):
    def prepare(self, ranks):
        self.lab.RANKS, lab02.STEPS = ranks, 3

    def original(self):
        return lab02.stack(lab02.SEED)

    def batch(self, step):
        return lab02.samples(RANK(), step)

    def loss(self, model, batches):
        return sum((model(x) - x).square().sum() for x in batches) / len(batches)


class OneDevice(Lab02):
    ranks = (1,)

    def prepare(self, ranks):
        pass

    def batch(self, step):
        return lab02.samples(0, step)


class Lab04(Loop):
    def prepare(self, ranks):
        super().prepare(ranks)
        self.job.layers = 2

    def parts(self):
        return self.job.ranks


class Lab05(Loop):
    def prepare(self, ranks):
        super().prepare(ranks)
        self.job.layers = 2
        if ranks == 3:  # the letters' rows do not divide
            self.job.heads, self.job.embd, self.job.block = 3, 48, 24

    def groups(self):
        return None, dist.group.WORLD


class Lab06(Loop):
    everywhere, groups, ranks = False, None, (2, 3, 4)

    def prepare(self, ranks):
        super().prepare(ranks)
        self.job.steps, self.job.layers, self.job.grad_accum = 2, 2 * ranks, ranks

    def names(self, model):
        chunks = len(model)
        blocks = self.job.layers // (self.job.ranks * chunks)

        def name_of(name):
            chunk, name = name.split(".", 1)
            first = (RANK() + int(chunk) * self.job.ranks) * blocks
            name = re.sub(r"^blocks\.(\d+)", lambda match: f"blocks.{first + int(match[1])}", name)
            return "wte.weight" if name == "head.weight" else name
        return name_of

    def loss(self, model, batches):
        return super().loss(model, batches[:1])


class Lab07(Loop):
    ranks = (4,)

    @functools.cache
    def groups(self):
        groups = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3], [0, 1], [2, 3])]
        return groups[RANK() % 2], groups[2 + RANK() // 2]

    def prepare(self, ranks):
        super().prepare(ranks)
        self.job.layers = 2


class Lab08(Loop):
    scaled = True

    def prepare(self, ranks):
        self.job.ranks, self.job.steps, lab08.BAD[:] = ranks, 3, [3]


class Lab12(Loop):
    groups = None

    def prepare(self, ranks):
        super().prepare(ranks)
        if ranks == 3:
            self.job.block = 48

    def loss(self, model, batches):
        shared.Attention.forward, ring = ATTEND, shared.Attention.forward
        try:
            return super().loss(model, batches[:1])
        finally:
            shared.Attention.forward = ring

    def causal(self, model, returned):
        mine = torch.tensor(returned["positions"])
        model.positions = mine
        take_along.causal(lambda tokens: model(tokens[:, mine]), self.job.batch_of(0, 0)[0], self.job.block // 2, mine.tolist())


class Whole(lab13.Mixture):
    """The mixture on one device: each expert computes the tokens that chose it."""

    def forward(self, x):
        tokens = x.flatten(0, 1)
        scores = self.router(tokens).softmax(-1)
        weights, chosen = scores.topk(lab13.TOP)
        weights = weights / weights.sum(-1, keepdim=True)
        self.seen.append((chosen.flatten().bincount(minlength=lab13.EXPERTS), scores.mean(0)))
        out = torch.zeros_like(tokens)
        for number, expert in self.experts.items():
            row, k = (chosen == int(number)).nonzero(as_tuple=True)
            out = out.index_add(0, row, expert(tokens[row]) * weights[row, k, None])
        return out.view_as(x)


class Lab13(Loop):
    everywhere = False

    def prepare(self, ranks):
        super().prepare(ranks)
        if ranks == 3:
            lab13.EXPERTS = 6

    def original(self):
        model, self.job.ranks, ranks = GPT(self.job), 1, self.job.ranks
        lab13.share(model, 0)
        self.job.ranks = ranks
        for block in model.blocks.values():
            block.mlp.__class__, block.mlp.seen = Whole, []
        return model

    def loss(self, model, batches):
        loss = super().loss(model, batches)
        for block in model.blocks.values():
            counts, means = map(torch.stack, zip(*block.mlp.seen))
            loss = loss + lab13.COEFFICIENT * lab13.EXPERTS * (counts.sum(0) / counts.sum() * means.mean(0)).sum()
        return loss


class Lab09(Loop):
    """Two jobs: what the first one had is noted, and kept in a file until the second one has loaded."""

    def first(self, checks, folder):
        after = []
        note = lambda optimizer, *_: after.append(take_along.hashes(MADE[optimizer], None, optimizer))
        hook = register_optimizer_step_post_hook(note)
        lab09.first_job(folder, None)
        hook.remove()
        if RANK() == 0:
            torch.save(after[-1], pathlib.Path(folder) / "noted")

    def second(self, checks, folder):
        noted = torch.load(pathlib.Path(folder) / "noted")

        def loaded(optimizer, *_):
            with checks.of("kept"):
                take_along.kept(noted, MADE[optimizer], None, optimizer)

        train = lab09.train

        def checking(model, optimizer, steps):
            if steps != [0]:
                loaded(optimizer)
            return train(model, optimizer, steps)

        lab09.train = checking
        lab09.second_job(folder)


def drop(checks):
    """Dropout of what both ranks hold, and of a part of which each has its own."""
    for same in (True, False):
        seed = 7 + (0 if same != ("seed" in shared.BROKEN) else RANK())
        torch.manual_seed(seed)
        with take_along.Masks() as masks:
            nn.Dropout(0.5)(torch.ones(64, requires_grad=True))
            F.dropout(torch.ones(8, 8, requires_grad=True), 0.1)
        with checks.of("Masks"):
            masks.check(equal=same)


def mixed(checks):
    """A replicated gain beside a sharded matrix, under a scaler that looks for infinities as the first gradient is placed."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    gain = nn.Parameter(distribute_tensor(torch.ones(8), mesh, [Replicate()]))
    matrix = nn.Parameter(distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)]))
    order = [gain, matrix] if "order" in shared.BROKEN else [matrix, gain]
    optimizer, scaler = torch.optim.AdamW(order, 1e-3), torch.amp.GradScaler("cpu", init_scale=16.0)
    scaler.scale(local(matrix).sum() + local(gain).sum()).backward()  # so the gradients are placed as the parameters are
    if RANK() + 1 == dist.get_world_size():
        matrix.grad.to_local()[0] = float("inf")
    with checks.of("one_decision"), take_along.one_decision(optimizer):
        scaler.step(optimizer)


LOOPS = {
    "loop": OneDevice(one_device),
    "lab01": Lab01(lab01),
    "lab02": Lab02(lab02),
    "lab03": Loop(lab03),
    "lab04, ZeRO-3": Lab04(lab04, arguments=(3,)),
    "lab04, ZeRO-2": Lab04(lab04, arguments=(2,)),
    "lab05, tensor": Lab05(lab05, arguments=(False,)),
    "lab05, sequence": Lab05(lab05, arguments=(True,)),
    "lab06": Lab06(lab06),
    "lab07": Lab07(lab07),
    "lab08": Lab08(lab08),
    "lab09": Lab09(lab09, ranks=(4,)),
    "lab12": Lab12(lab12),
    "lab13": Lab13(lab13),
    "dropout": Loop(None, own=drop, ranks=(2, 4), prepare=lambda ranks: None),
    "placements": Loop(None, own=mixed, ranks=(2, 4), prepare=lambda ranks: None),
}


# ---- More mistakes, each made in a loop that is right

def last():
    return RANK() + 1 == dist.get_world_size()


def after_first_step(change):
    """Changes something of the model and its optimizer, on the last rank, when the first step is done."""
    def hook(optimizer, *_):
        if last() and optimizer in MADE and not getattr(optimizer, "changed", False):
            optimizer.changed = True
            with torch.no_grad():
                change(MADE[optimizer], optimizer)
    return lambda: register_optimizer_step_post_hook(hook) and None


def local(p):
    return p.to_local() if isinstance(p, DTensor) else p


def drifts(model, optimizer):
    """One bit of one number."""
    local(model.blocks["1"].mlp.fc.weight).view(torch.int32)[3, 3] ^= 1


def forgets(model, optimizer):
    """One moment of Adam."""
    optimizer.state[model.blocks["0"].mlp.fc.weight]["exp_avg"].zero_()


def same_data():
    real = shared.Job.batch_of
    shared.Job.batch_of = lambda job, rank, *where: real(job, rank if not shared.BROKEN else 0, *where)


def own_data():
    real = shared.Job.batch_of
    shared.Job.batch_of = lambda job, rank, step, *micro: real(job, rank, step + (5 if shared.BROKEN and last() else 0), *micro)


def detached():
    """A branch through which no gradient comes back."""
    shared.Mlp.forward = lambda self, x: self.out(F.gelu(self.fc(x)).detach())


def made_early():
    real = lab04.adamw

    def adamw(model, lr):
        early = real(copy.deepcopy(unbroken(GPT, lab04.JOB)), lr)
        MADE[early] = model
        return early
    lab04.adamw = adamw


def summed():
    """Gradients are added, and nobody divides."""
    real = lab04.adamw

    def adamw(model, lr):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply as it adds
        return real(model, lr)
    lab04.adamw = adamw


def not_synchronised():
    lab03.DistributedDataParallel.no_sync, real = contextlib.nullcontext, lab03.DistributedDataParallel.forward

    def forward(self, x):
        self.require_backward_grad_sync = False
        return real(self, x)
    lab03.DistributedDataParallel.forward = forward


def clips_its_own():
    """The norm of this rank's shards."""
    def clip(model, most=1.0):
        norm = torch.nn.utils.get_total_norm([local(p.grad) for p in model.parameters()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm, foreach=False)
        return norm.item()
    lab05.clip = clip


def other_gains():
    """Each rank draws what it does not share: a gain that is whole on all ranks."""
    real = lab05.cut

    def cut(model, *how):
        real(model, *how)
        with torch.no_grad():
            model.blocks["0"].ln1.weight.add_(0.01 * RANK())
    lab05.cut = cut


def table_alone():
    """The two stages with the token table do not add up its gradients."""
    real = dist.all_reduce
    dist.all_reduce = lambda x, *a, group=None, **k: None if group is not None else real(x, *a, **k)


def table_twice():
    """The norm counts the table on both of its stages."""
    def clip(parts, table):
        parameters = [p for part in parts for p in part.parameters()]
        squares = torch.nn.utils.get_total_norm([p.grad for p in parameters]) ** 2
        dist.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, squares.sqrt())
    lab06.clip = clip


def not_scaled():
    """Micro-batches' gradients are added up."""
    for name in ("ScheduleGPipe", "Schedule1F1B"):
        real = getattr(lab06, name)
        kind = type(name, (real,), {"__init__": lambda self, *a, real=real, **k: real.__init__(self, *a, scale_grads=False, **k)})
        setattr(lab06, name, kind)
        lab06.SCHEDULES = {key: (kind if one is real else one, chunks) for key, (one, chunks) in lab06.SCHEDULES.items()}


def layer_lost():
    """The last stage forgets its last block."""
    real = lab06.Part.__init__

    def init(self, gpt, i, of):
        real(self, gpt, i, of)
        if i + 1 == of:
            del self.blocks[-1]
    lab06.Part.__init__ = init


def sees_all():
    """Attention without its mask."""
    real, options = lab12.ring._templated_ring_attention, lab12.ring._cp_options

    def unmasked(*a, is_causal, **k):
        options.enable_load_balance = False  # which is refused without a mask
        try:
            return real(*a, is_causal=False, **k)
        finally:
            options.enable_load_balance = True
    lab12.ring._templated_ring_attention = unmasked


def router_alone():
    """A router's gradient is taken for an expert's: it is not added up over the ranks."""
    real = dist.all_reduce
    dist.all_reduce = lambda x, *a, **k: None if x.shape == (lab13.EXPERTS, lab13.JOB.embd) else real(x, *a, **k)


MISTAKES = {
    "lab03": {"one bit": after_first_step(drifts), "a moment": after_first_step(forgets), "same data": same_data,
              "not synchronised": not_synchronised},
    "lab04, ZeRO-3": {"detached": detached, "optimizer made early": made_early, "sum for mean": summed},
    "lab05, tensor": {"norm of its own": clips_its_own, "other gains": other_gains, "data of its own": own_data},
    "lab06": {"table alone": table_alone, "table twice": table_twice, "not scaled": not_scaled, "layer lost": layer_lost},
    "lab12": {"no mask": sees_all},
    "lab13": {"router alone": router_alone},
    "dropout": {"seed": None},
    "placements": {"order": None},
}
# The mistakes that compare.py knows.
KNOWN = {
    "loop": ["weight"], "lab01": ["numbers", "bytes"], "lab02": ["weight", "bytes"], "lab03": ["weight", "twice"],
    "lab04, ZeRO-3": ["weight", "reshard", "whole"], "lab05, tensor": ["weight", "calls"], "lab06": ["weight", "order"],
    "lab07": ["data", "groups"], "lab08": ["weight", "steps"], "lab09": ["weight", "moments"], "lab12": ["weight", "positions"],
    "lab13": ["divided", "norm"],
}


def launch(name, ranks, mistake=None, noted=None):
    loop, broken = LOOPS[name], {mistake} if mistake else set()
    if name != "lab09":
        return shared.launch(checked, ranks, loop, name, ranks, mistake, noted, broken=broken)
    with tempfile.TemporaryDirectory() as folder:
        second = Lab09(lab09, own=lambda checks: loop.second(checks, folder))
        first = Lab09(lab09, own=lambda checks: loop.first(checks, folder))
        first.prepare = second.prepare = lambda ranks: None
        shared.launch(checked, lab09.JOB.ranks, first, name, ranks, mistake, None, broken=broken)
        return shared.launch(checked, lab09.FEWER, second, name, ranks, mistake, None, broken=broken)


def table(say, only=()):
    """Each mistake with the checks that name it, after the right loops. Returns what is wrong: loops that a check named, mistakes that
    none did, checks that never named one."""
    loops = [name for name in LOOPS if not only or name[:5] in only or name in only]
    wrong, right, noted, evidence = [], 0, {}, []
    for name in loops:
        for ranks in LOOPS[name].ranks:
            found, noted[name] = launch(name, ranks)
            right += 1
            if found:
                wrong.append(f"{name} on {ranks} ranks is right, and named: {found}")
        if LOOPS[name].own is None and name != "lab09":  # once more, beside its own calls
            found, _ = launch(name, max(LOOPS[name].ranks), None, noted[name])
            if found:
                wrong.append(f"{name} is right, and named beside its own calls: {found}")
    # lab06 is four loops, one for each schedule.
    right += 3 * len(LOOPS["lab06"].ranks) if "lab06" in loops else 0
    say(f"{right} right loops on 1 to 4 ranks; named by a check: {len(wrong)}\n")
    heads = [check[:10] for check in CHECKS]
    say(f"{'mistake':35} " + " ".join(heads))
    used = set()
    for name in loops:
        for mistake in KNOWN.get(name, []) + list(MISTAKES.get(name, [])):
            found, _ = launch(name, max(LOOPS[name].ranks), mistake, noted[name])
            used |= found.keys()
            if not found:
                wrong.append(f"{name}, {mistake}: no check names it")
            say(f"{name + ': ' + mistake:35} " + " ".join(f"{'✓' if check in found else '·':{len(head)}}" for check, head in zip(CHECKS, heads)))
            evidence += [f"{name}, {mistake}: {check}: {what}" for check, what in found.items()]
    if not only:
        wrong += [f"{check} never names anything" for check in CHECKS if check not in used]
    return wrong, evidence


def pairs(steps=200, every=100, times=5):
    """What hashes cost: the same training without and with them, in turn. Seconds on the clock and of CPU time, on rank 0."""
    job = shared.Job(ranks=2, layers=4, heads=4, embd=128, block=64, batch=4)
    model = nn.parallel.DistributedDataParallel(GPT(job))
    optimizer = shared.adamw(model.module, job.lr)
    x, y = job.batch_of(RANK(), 0)
    rows = []
    for turn in range(2 * times + 2):
        dist.barrier()
        clock, cpu = time.perf_counter(), time.process_time()
        for step in range(1, steps + 1):
            cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if turn % 2 and step % every == 0:
                take_along.replicas(model, None, optimizer)
        dist.barrier()
        rows.append([time.perf_counter() - clock, time.process_time() - cpu])
    return {"numbers": sum(p.numel() for p in model.parameters()), "rows": rows[2:]}  # the first pair warms up


if __name__ == "__main__":
    done = shared.launch(pairs, 2)
    print(f"{done['numbers']:,} parameters, 2 ranks: hashes of weights and moments every 100 steps, or none, in turn")
    for kind, what in enumerate(("seconds", "CPU seconds")):
        without, with_them = ([row[kind] for row in done["rows"][first::2]] for first in (0, 1))
        more = [100 * (b / a - 1) for a, b in zip(without, with_them)]
        print(f"{what:12} without", *(f"{one:6.2f}" for one in without))
        print(f"{'':12} with   ", *(f"{one:6.2f}" for one in with_them))
        print(f"{'':12} more, %", *(f"{one:6.2f}" for one in more), f"  median {statistics.median(more):.2f}")
