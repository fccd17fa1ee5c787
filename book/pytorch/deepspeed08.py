"""lab08 in DeepSpeed: its loss scaler in fp16, and two steps that overflow on one rank.

Alone:            python book/pytorch/deepspeed08.py
Beside lab08:     python book/pytorch/compare.py deepspeed08

Here all of the model is fp16, activations, too; lab08 rounds gradients only. So losses agree to three digits.
"""

import torch.distributed as dist

import shared
import with_deepspeed
from shared import GPT, Job, adamw, cross_entropy, mean

JOB = Job(ranks=2, batch=2, grad_accum=2, steps=13)
BAD = [6, 7]  # steps, counted from 1
POWER = 8  # the first scale is 2^8, which nothing but the bad steps overflows
# Stage 0 has a rule without hysteresis: each overflow halves the scale. By how much its power has changed after each step. (Its
# losses are others: findings/deepspeed-in-fp16-without-zero-begins-with-adams-second-step.sh.)
STAGE_0 = [0, 0, 0, 0, 1, 0, -1, -1, -1, -1, -1, 0, 0]


# ANCHOR: heart
def train(model, lr, batches, stage):
    scaler = {"enabled": True, "initial_scale_power": POWER, "loss_scale_window": 4, "hysteresis": 2}
    engine = with_deepspeed.engine(
        model, adamw(model, lr), JOB.batch, fp16=scaler,
        gradient_accumulation_steps=JOB.grad_accum, zero_optimization={"stage": stage})
    losses, scales, taken, skipped = [], [], [], 0
    for step, micro_batches in enumerate(batches, 1):
        loss = 0
        for x, y in micro_batches:
            share = cross_entropy(engine(x).float(), y)
            engine.backward(overflowing(share, step))  # divided by the micro-batches, and scaled
            engine.step()  # only after the last one: unscales, looks for inf and nan, clips
            loss += share.detach() / len(micro_batches)
        taken.append(engine.skipped_steps == skipped)
        skipped = engine.skipped_steps
        scales.append(engine.optimizer.loss_scale)  # for the next step
        losses.append(mean(loss))
    return losses, scales, taken
# ANCHOR_END: heart


def overflowing(loss, step):
    """In the bad steps, and on the last rank, the loss is infinite, and so are its gradients."""
    return loss * float("inf") if step in BAD and dist.get_rank() + 1 == JOB.ranks else loss


def run(stage=1):
    if "steps" in shared.BROKEN:
        BAD.pop()
    batches = [[JOB.batch_of(dist.get_rank(), step, micro) for micro in range(JOB.grad_accum)] for step in range(JOB.steps)]
    losses, scales, taken = train(GPT(JOB), JOB.lr, batches, 1 - stage if "stage" in shared.BROKEN else stage)
    return {"losses": losses, "scales": scales, "taken": taken}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
