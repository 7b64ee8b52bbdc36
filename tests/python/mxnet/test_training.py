"""Training with Gluon and Module: parameters, gradients, optimizers."""

from __future__ import annotations

import pickle
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

import horovod.mxnet as hvd

ROWS = 12  # of the whole batch: divisible by the numbers of ranks that are tested
STEPS = 25


def make_net(name: str, dtype: str = "float64", seed: int = 7) -> gluon.nn.Block:
    mx.random.seed(seed)
    np.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix=name)
    with net.name_scope():
        net.add(gluon.nn.Dense(16, activation="tanh", in_units=6), gluon.nn.Dense(3, in_units=16))
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    return net


def whole_batch(step: int, dtype: str = "float64") -> tuple[NDArray, NDArray]:
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(ROWS, 6))
    labels = (inputs[:, :3] * inputs[:, 3:]).argmax(1)
    return mx.nd.array(inputs, dtype=dtype), mx.nd.array(labels, dtype=dtype)


def own_rows() -> slice:
    each = ROWS // hvd.size()
    return slice(hvd.rank() * each, (hvd.rank() + 1) * each)


def train(net: gluon.nn.Block, trainer: gluon.Trainer, rows: slice, dtype: str = "float64") -> None:
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(STEPS):
        inputs, labels = (each[rows] for each in whole_batch(step, dtype))
        with autograd.record():
            loss = loss_of(net(inputs), labels)
        loss.backward()
        trainer.step(len(inputs))


def flat(net: gluon.nn.Block) -> Any:
    return np.concatenate([each.data().asnumpy().ravel() for each in net.collect_params().values()])


def assert_same_on_all_ranks(parameters: Any) -> None:
    for other in hvd.allgather_object(parameters):
        np.testing.assert_array_equal(other, parameters)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("way", ["plain", "fp16", "groups", "many groups", "predivide"])
def test_trainer_equals_one_process_with_the_whole_batch(way: str, name: str) -> None:
    options = {"learning_rate": 0.1, "momentum": 0.9} if name == "sgd" else {"learning_rate": 0.01}
    alone = make_net("alone_")
    train(alone, gluon.Trainer(alone.collect_params(), name, dict(options), kvstore=None), slice(None))
    arguments: dict[str, Any] = {
        "fp16": {"compression": hvd.Compression.fp16},
        "groups": {"num_groups": 2},
        "many groups": {"num_groups": 9, "compression": hvd.Compression.fp16},
        "predivide": {"gradient_predivide_factor": 2.0},
    }.get(way, {})
    net = make_net("net_", seed=7 + hvd.rank())
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), name, dict(options), prefix=f"{way}.", **arguments)
    train(net, trainer, own_rows())
    assert_same_on_all_ranks(flat(net))
    np.testing.assert_allclose(flat(net), flat(alone), atol=0.05 if "compression" in arguments else 1e-9)


def test_trainer_in_mixed_types_with_groups() -> None:
    first, second = make_net("f64_", "float64"), make_net("f32_", "float32")
    params = {**first.collect_params(), **second.collect_params()}
    trainer = hvd.DistributedTrainer(params, "sgd", num_groups=2, prefix="mixed.")
    inputs, _ = whole_batch(hvd.rank())
    with autograd.record():
        loss = first(inputs).sum() + second(inputs.astype("float32")).sum().astype("float64")
    loss.backward()
    trainer.allreduce_grads()
    for name in ("f64_dense1_bias", "f32_dense1_bias"):
        # Sums, as upstream has them on CPUs: the scale makes them averages.
        assert params[name].grad().asnumpy().tolist() == [ROWS * hvd.size()] * 3
    assert trainer._scale == pytest.approx(1 / hvd.size())


def test_frozen_parameters_are_left_alone() -> None:
    net = make_net(f"frozen{hvd.rank()}_")
    net[0].collect_params().setattr("grad_req", "null")
    before = net[0].weight.data().asnumpy()
    train(net, hvd.DistributedTrainer(net.collect_params(), "sgd", prefix="frozen."), own_rows())
    assert (net[0].weight.data().asnumpy() == before).all()


def test_trainer_takes_lists_and_wrapped_optimizers() -> None:
    net = make_net("listed_")
    params = list(net.collect_params().values())
    if hvd.rank() % 2:
        params.reverse()
    plain = mx.optimizer.SGD(learning_rate=0.1, rescale_grad=0.5)
    with pytest.warns(UserWarning, match="the optimizer inside is used"):
        trainer = hvd.DistributedTrainer(params, hvd.DistributedOptimizer(plain), prefix="listed.")
    assert trainer._optimizer is plain
    assert trainer._scale == pytest.approx(0.5 / hvd.size())
    train(net, trainer, own_rows())
    assert_same_on_all_ranks(flat(net))


def test_deferred_initialisation() -> None:
    mx.random.seed(hvd.rank())
    net = gluon.nn.HybridSequential(prefix="deferred_")
    with net.name_scope():
        net.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Dense(5), gluon.nn.Dense(2, in_units=5))
    net.initialize(mx.init.Normal(1))
    hvd.broadcast_parameters(net.collect_params(), root_rank=hvd.size() - 1)
    with autograd.record():
        net(mx.nd.ones((2, 3, 8, 8)))
    assert_same_on_all_ranks(flat(net))
    assert "_init_impl" not in vars(net[0].weight)
    net.initialize(mx.init.Normal(1), force_reinit=True)  # no second broadcast
    assert len({float(each.sum()) for each in hvd.allgather_object(flat(net))}) == hvd.size()


def test_arrays_by_name() -> None:
    params = {name: mx.nd.ones((3,)) * (hvd.rank() + 1) for name in "ba"}
    hvd.broadcast_parameters(params, root_rank=hvd.size() - 1, prefix="by name.")
    assert all((each == hvd.size()).asnumpy().all() for each in params.values())


def module_of(context: Any = None) -> mx.mod.Module:
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=16, name="fc1"), act_type="tanh")
    output = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="fc2"), label, name="softmax")
    return mx.mod.Module(output, context=context or mx.cpu())


def train_module(optimizer: mx.optimizer.Optimizer, rows: slice) -> dict[str, Any]:
    module = module_of()
    count = rows.indices(ROWS)
    size = len(range(*count))
    module.bind([("data", (size, 6))], [("softmax_label", (size,))])
    mx.random.seed(3)
    np.random.seed(3)
    module.init_params(mx.init.Xavier())
    args, auxs = module.get_params()
    if isinstance(optimizer, hvd.DistributedOptimizer):
        hvd.broadcast_parameters(args, prefix="module.")
    module.set_params(args, auxs)
    module.init_optimizer(kvstore=None, optimizer=optimizer)
    for step in range(STEPS):
        inputs, labels = (each[rows] for each in whole_batch(step, "float32"))
        module.forward_backward(mx.io.DataBatch([inputs], [labels]))
        module.update()
    return {name: each.asnumpy() for name, each in module.get_params()[0].items()}


@pytest.mark.parametrize("arguments", [{}, {"num_groups": 2}, {"gradient_predivide_factor": 2.0}], ids=str)
@pytest.mark.parametrize("kind", [mx.optimizer.SGD, mx.optimizer.Adam])
def test_module_equals_one_process_with_the_whole_batch(kind: Any, arguments: dict[str, Any]) -> None:
    options = {"learning_rate": 0.05, "wd": 0.01}
    alone = train_module(kind(rescale_grad=1 / ROWS, **options), slice(None))
    optimizer = hvd.DistributedOptimizer(kind(rescale_grad=hvd.size() / ROWS, **options), **arguments)
    assert optimizer.rescale_grad == pytest.approx(arguments.get("gradient_predivide_factor", 1.0) / ROWS)
    trained = train_module(optimizer, own_rows())
    for name, expected in alone.items():
        np.testing.assert_allclose(trained[name], expected, atol=1e-5)


def test_multi_precision() -> None:
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5, multi_precision=True))
    weight = mx.nd.zeros((4,), dtype="float16")
    state = optimizer.create_state_multi_precision(0, weight)
    assert state[1].dtype == np.float32
    gradient = mx.nd.empty((4,), dtype="float16")
    for _ in range(2):
        gradient[:] = hvd.rank() + 1
        optimizer.update_multi_precision(0, weight, gradient, state)
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(weight.asnumpy(), -2.5 * mean, rtol=1e-3)


def test_attributes_are_those_of_the_wrapped_optimizer() -> None:
    plain = mx.optimizer.SGD(learning_rate=0.25, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(plain)
    assert (optimizer.momentum, optimizer.learning_rate, optimizer.aggregate_num) == (0.5, 0.25, plain.aggregate_num)
    optimizer.set_learning_rate(0.5)
    optimizer.num_update = 7
    assert (plain.lr, plain.num_update) == (0.5, 7)
    optimizer.set_lr_mult({"a": 2.0})
    optimizer.set_wd_mult({"a": 3.0})
    assert plain.lr_mult["a"] == 2.0 and plain.wd_mult["a"] == 3.0
    restored = pickle.loads(pickle.dumps(optimizer))
    assert type(restored) is mx.optimizer.SGD and restored.rescale_grad == pytest.approx(1.0)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(plain, gradient_predivide_factor=0)


def test_gradients_that_cannot_be_reduced_are_named() -> None:
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD())
    weight = mx.nd.ones((3, 2))
    with pytest.raises(ValueError, match="gradient 5: arrays of storage type row_sparse"):
        optimizer.update(5, weight, weight.tostype("row_sparse"), None)


@pytest.mark.usefixtures("numbered_anew")
def test_only_ranks_of_the_set_train_together() -> None:
    pair = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.global_process_set
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=pair)
    weight = mx.nd.zeros((2,))
    optimizer.update(0, weight, mx.nd.ones((2,)) * (hvd.rank() + 1), None)
    assert weight.asnumpy().tolist() == ([-1.5] * 2 if pair.included() else [-1.0 - hvd.rank()] * 2)
    assert hvd.size() == 2 or hvd.remove_process_set(pair)
