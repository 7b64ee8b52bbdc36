"""How a GradScaler of PyTorch is recognised by the optimizers whose gradients it looks at."""

from __future__ import annotations

from types import CodeType

import torch


def unscaling_code() -> CodeType | None:
    """The code in which a GradScaler asks an optimizer for its gradients; None if this PyTorch has no such method."""
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler  # the latter until PyTorch 2.2
    code: CodeType | None = getattr(getattr(scaler, "_unscale_grads_", None), "__code__", None)
    return code
