#!/usr/bin/env python3
"""Loads the model that lab03 saved into PyTorch's GPT, and computes its validation loss there.

Set-up (a virtual environment): pip install torch numpy safetensors
Run: cargo run --bin lab03, and then: python benches/peers/lab03_in_torch.py runs/lab03/model.safetensors
The loss is the mean over all of the text's last tenth, cut into pieces as long as the model's block.
"""
import argparse, pathlib

# ANCHOR: imports
import json, torch
from safetensors import safe_open
from gpt_torch import GPT
# ANCHOR_END: imports

PLAY = pathlib.Path(__file__).resolve().parents[2] / "data" / "play.txt"

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("model", help="the file that lab03 saved")
p.add_argument("--data", default=PLAY, help="the text that lab03 learned from [default: the play]")
a = p.parse_args()
path = a.model

# ANCHOR: load
file = safe_open(path, "pt")
shape = json.loads(file.metadata()["shape"])
model = GPT(shape["vocabulary"], shape["block"], shape["layers"], shape["heads"], shape["embd"])
weights = {name: file.get_tensor(name) for name in file.keys()}
model.load_state_dict(weights | {"head.weight": weights["wte.weight"]})
# ANCHOR_END: load

letters, block = file.metadata()["vocabulary"], shape["block"]
text = pathlib.Path(a.data).read_text()
tokens = torch.tensor([letters.index(letter) for letter in text[int(0.9 * len(text)) :]])
pieces = (len(tokens) - 1) // block
x, y = (tokens[shift : shift + pieces * block].view(pieces, block) for shift in (0, 1))
with torch.no_grad():
    loss = model(x, y).item()
print(
    f"PyTorch {torch.__version__}: {sum(p.numel() for p in model.parameters()):,} parameters, "
    f"validation loss {loss:.3f} over {pieces} x {block} characters"
)
