"""Random programs of verbs, compiled and not, against a serial model in NumPy (random_calls.py).

Every rank compiles its functions, starts its handles and waits for them in an order of its own. A failure names the
program; JAX_PROGRAM=seed.number runs that one alone, JAX_PROGRAM=seed others than usual.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from random import Random, SystemRandom
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_rank import TIME_LIMIT
from random_calls import FULL, REDUCTIONS, Generator, RandomCall, gradient_weights

import horovod.jax as hvd

IS_FALLBACK = os.environ.get("HOROVOD_JAX_FALLBACK") == "1"
PROGRAMS = 500 if FULL else 8 if IS_FALLBACK else 20
Results = list[Any]


@pytest.fixture
def sets() -> Iterator[list[hvd.ProcessSet]]:
    """All ranks, all but the last, and the last."""
    last = hvd.size() - 1
    added = [hvd.add_process_set(each) for each in (list(range(last)), [last])] if last else []
    yield [hvd.global_process_set, *added]
    hvd.barrier()
    for each in added:
        hvd.remove_process_set(each)


def arguments(call: RandomCall, sets: list[hvd.ProcessSet]) -> dict[str, Any]:
    """The parameters of the verb besides arrays."""
    given: dict[str, Any] = {"name": call.name, "process_set": sets[call.set_number]}
    if call.reduce:
        given |= {"op": REDUCTIONS[call.reduce]}
        given |= {"prescale_factor": call.prescale, "postscale_factor": call.postscale}
    if call.verb == "broadcast":
        given["root_rank"] = call.root
    if call.splits:
        place = call.members.index(hvd.rank())
        given["splits"] = list(call.splits[place])
        if call.mode == "jit":
            given["received_splits"] = [each[place] for each in call.splits]
    return given


def apply(call: RandomCall, sets: list[hvd.ProcessSet], arrays: Results) -> Results:
    """The verb on the arrays."""
    if call.verb == "alltoall":
        result = hvd.alltoall(arrays[0], **arguments(call, sets))
        return [result[0] if call.splits else result]
    if len(arrays) == 1:
        return [getattr(hvd, call.verb)(arrays[0], **arguments(call, sets))]
    result = getattr(hvd, call.verb)({f"leaf{i}": each for i, each in enumerate(arrays)}, **arguments(call, sets))
    return [result[f"leaf{i}"] for i in range(len(arrays))]


def function_of(call: RandomCall, sets: list[hvd.ProcessSet]) -> Callable[..., Results]:
    """What is compiled."""

    def plain(*arrays: Any) -> Results:
        return apply(call, sets, list(arrays))

    def scanned(*arrays: Any) -> Results:
        found: Results = jax.lax.scan(lambda carry, each: (carry, plain(*each)), 0, arrays)[1]
        return found

    def gradient(*arrays: Any) -> Results:
        weights = gradient_weights(call, hvd.rank())

        def loss(*inputs: Any) -> Any:
            return sum((each * weight).sum() for each, weight in zip(plain(*inputs), weights, strict=True))

        return list(jax.grad(loss, argnums=tuple(range(len(arrays))))(*arrays))

    return {"jit": plain, "scan": scanned, "vmap": jax.vmap(plain), "grad": gradient}[call.mode]


class Program:
    """One program on this rank."""

    def __init__(self, calls: list[RandomCall], sets: list[hvd.ProcessSet], own: Random) -> None:
        self._calls = [call for call in calls if hvd.rank() in call.members]
        self._sets = sets
        self._own = own  # orders of this rank
        self._given = {call.number: [jnp.asarray(each) for each in call.given(hvd.rank())] for call in self._calls}
        self._results: dict[int, Results] = {}

    def run(self) -> None:
        """Run and check it."""
        compiled = self._compile()
        handles = [(call, self._start(call)) for call in self._shuffled("async")]
        for call in self._calls:
            if call.mode == "eager":
                self._results[call.number] = apply(call, self._sets, self._given[call.number])
            elif call.number in compiled:
                self._results[call.number] = compiled[call.number](*self._given[call.number])
        self._run_halves()
        self._own.shuffle(handles)
        for call, handle in handles:
            self._results[call.number] = self._finish(call, handle)
        for call in self._calls:
            self._check(call)

    def _shuffled(self, *modes: str) -> list[RandomCall]:
        chosen = [call for call in self._calls if call.mode in modes]
        return self._own.sample(chosen, len(chosen))

    def _compile(self) -> dict[int, Any]:
        compiled = {}
        for call in self._shuffled("jit", "scan", "vmap", "grad"):
            function = jax.jit(function_of(call, self._sets))
            compiled[call.number] = function.lower(*self._given[call.number]).compile()
        return compiled

    def _start(self, call: RandomCall) -> int:
        given = self._given[call.number]
        tree = given[0] if len(given) == 1 else given
        handle: int = getattr(hvd, f"{call.verb}_async")(tree, **arguments(call, self._sets))
        return handle

    def _finish(self, call: RandomCall, handle: int) -> Results:
        result = hvd.synchronize(handle)
        result = result[0] if call.verb == "alltoall" else result
        return list(result) if isinstance(result, list) else [result]

    def _run_halves(self) -> None:
        """One compiled function with all starts, then all ends."""
        calls = self._shuffled("start")
        if IS_FALLBACK:  # callbacks have no halves, so ranks need the same order
            calls.sort(key=lambda call: call.number)
        if not calls:
            return

        def both(given: list[Results]) -> list[Results]:
            started = [
                hvd.allreduce_start(each, **arguments(call, self._sets))
                for call, each in zip(calls, given, strict=True)
            ]
            return [hvd.allreduce_done(each) for each in started]

        found = jax.jit(both)([self._given[call.number] for call in calls])
        self._results |= {call.number: results for call, results in zip(calls, found, strict=True)}

    def _check(self, call: RandomCall) -> None:
        results = [np.asarray(each) for each in self._results[call.number]]
        if call.mode != "grad":
            return call.check(results, hvd.rank())
        weight = sum(member + 1.0 for member in call.members) * call.prescale * call.postscale
        weight = weight / len(call.members) if call.reduce == "Average" else weight
        for got, shape in zip(results, call.shapes, strict=True):
            np.testing.assert_allclose(got, np.full(shape, weight, np.float32), rtol=1e-6)


def chosen() -> tuple[int, list[int]]:
    """The seed, and the numbers of programs."""
    seed, _, number = os.environ.get("JAX_PROGRAM", "").partition(".")
    picked = int(seed) if seed else hvd.broadcast_object(SystemRandom().getrandbits(20) if FULL else 1)
    return picked, [int(number)] if number else list(range(PROGRAMS))


# Programs differ in the number of their operations from rank to rank.
pytestmark = pytest.mark.usefixtures("numbered_anew")


def test_random_programs(sets: list[hvd.ProcessSet]) -> None:
    seed, numbers = chosen()
    generator = Generator([tuple(each.ranks or range(hvd.size())) for each in sets])
    for number in numbers:
        faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)  # for each program, as they may be many
        calls = generator.program(seed, number)
        try:
            Program(calls, sets, Random(f"{seed}.{number}.{hvd.rank()}")).run()
        except Exception as error:
            shown = "\n".join(map(str, calls))
            raise AssertionError(f"program {seed}.{number} (JAX_PROGRAM={seed}.{number}):\n{shown}") from error
        hvd.barrier()
        if number % 50 == 49:
            jax.clear_caches()  # a program is compiled once and never used again
