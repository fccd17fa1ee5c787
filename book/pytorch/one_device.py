"""The training loop on one device in PyTorch: lab02's model and data, without another rank.

Alone:            python book/pytorch/one_device.py
Beside lab02:     python book/pytorch/compare.py loop
"""

import torch

import shared
from lab02 import LR, SEED, STEPS, samples, stack


# ANCHOR: heart
def train(model, optimizer, batches):
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = (model(x) - x).square().sum()  # forward pass: how wrong is the model on this batch?
        loss.backward()  # backward pass: which way must each parameter move?
        optimizer.step()  # the optimizer moves it a little
        losses.append(loss.item())
    return losses
# ANCHOR_END: heart


def run():
    model = stack(SEED)  # random weights
    batches = [samples(0, step) for step in range(STEPS)]
    return {"losses": train(model, shared.made(model, torch.optim.Adam(model.parameters(), LR)), batches)}


if __name__ == "__main__":
    shared.main(run, 1)
