"""What the loops in DeepSpeed share: its start on CPUs, where gloo takes the place of NCCL.

Set-up: the virtual environment of compare.py, and in it DeepSpeed 0.19.8, of which nothing is compiled:

    DS_BUILD_OPS=0 venv/bin/pip install deepspeed==0.19.8
"""

import os

os.environ |= {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "TORCHDYNAMO_DISABLE": "1"}

import logging
import sys

logging.disable(logging.WARNING)
import deepspeed
import torch.distributed as dist
from deepspeed.utils import logger

logger.setLevel(logging.ERROR)
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a helper for shared memory, which would be compiled
deepspeed.get_accelerator().is_fp16_supported = lambda: True  # slow without instructions for it, and right


def engine(model, optimizer, batch, **config):
    """The model in DeepSpeed's engine. Its ranks are those that `shared.launch` has started."""
    os.environ |= {"LOCAL_RANK": str(dist.get_rank()), "RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    config = {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": 1.0} | config
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
