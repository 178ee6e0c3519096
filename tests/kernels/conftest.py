"""Where there is no GPU, Triton's interpreter runs the kernels: its switch is read when they are imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
