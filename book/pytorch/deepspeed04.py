"""lab04 in DeepSpeed: the GPT under ZeRO's stages 1 to 3.

Alone:            python book/pytorch/deepspeed04.py
Beside lab04:     python book/pytorch/compare.py deepspeed04
"""

from torch.distributed import get_rank

import shared
import with_deepspeed
from lab04 import JOB
from shared import GPT, adamw, cross_entropy, mean


# ANCHOR: heart
def train(model, lr, batches, stage):
    optimizer = adamw(model, lr)  # before sharding: DeepSpeed exchanges its parameters
    engine = with_deepspeed.engine(model, optimizer, JOB.batch, zero_optimization={"stage": stage})
    losses, norms = [], []
    for x, y in batches:
        loss = cross_entropy(engine(x), y)
        engine.backward(loss)  # gradients are averaged; from stage 2 on each rank keeps its part
        engine.step()  # clips, updates this rank's part, gathers, and clears the gradients
        losses.append(mean(loss))
        norms.append(float(engine.get_global_grad_norm()))
    return losses, norms
# ANCHOR_END: heart


def run(stage=3):
    batches = [JOB.batch_of(get_rank(), step) for step in range(JOB.steps)]
    losses, norms = train(GPT(JOB), JOB.lr, batches, stage)
    return {"losses": losses, "norms": norms}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
