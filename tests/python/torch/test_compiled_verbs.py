"""Verbs in a function under torch.compile: they run between its graphs."""

from __future__ import annotations

import torch

import horovod.torch as hvd


def test_a_compiled_function_with_verbs() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    def step(values: torch.Tensor) -> torch.Tensor:
        doubled = values * 2
        summed = hvd.allreduce(doubled, op=hvd.Sum)
        handle = hvd.allreduce_async(summed + 1, name="compiled", op=hvd.Max)
        largest = hvd.synchronize(handle)
        gathered = hvd.allgather(values)
        return summed + largest + gathered.sum()

    compiled = torch.compile(step, backend=backend)
    for round_number in range(3):
        plain = torch.full((4,), hvd.rank() + 1.0 + round_number, requires_grad=True)
        followed = plain.detach().clone().requires_grad_()
        expected, result = step(plain), compiled(followed)
        assert torch.equal(result, expected)
        expected.sum().backward()
        result.sum().backward()
        assert torch.equal(followed.grad, plain.grad)
    assert len(graphs) >= 2
    code = "".join(graph.code for graph in graphs)
    assert "numpy" not in code and "ctypes" not in code
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [float(hvd.size())] * 2
