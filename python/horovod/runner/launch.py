"""Starting jobs from Python. All work is done by the program horovodrun.

python -m horovod.runner -np 4 python train.py      # the same as horovodrun -np 4 python train.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import horovod
from horovod.common.util import gloo_built, mpi_built
from horovod.runner import options, program
from horovod.runner.common.util import config_parser
from horovod.runner.function import reach
from horovod.runner.function.call import call
from horovod.runner.util import lsf


def run_commandline() -> NoReturn:
    """Replace this process by horovodrun, with the same arguments."""
    os.execv(program.find(), [program.NAME, *sys.argv[1:]])


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line of horovodrun. Options that were not given are None, or False where they are flags.

    An invalid command line ends the process with code 2, `--version` and `--check-build` with 0. A value out of
    range, or a configuration file with an invalid structure, is a ValueError.
    """
    parser = options.make_parser()
    args = parser.parse_args(argv)
    if args.version:
        print(horovod.__version__)
        parser.exit(0)
    if args.check_build:
        parser.exit(subprocess.call([program.find(), "--check-build", *(["--verbose"] if args.verbose else [])]))
    if args.config_file:
        given = {name for name, value in options.unset().items() if getattr(args, name) is not value}
        config_parser.set_args_from_config(args, config_parser.read_config(args.config_file), given)
    config_parser.validate_config_args(args)
    if args.num_proc is None and not _has_slots(args):
        parser.error("how many ranks? -np is required")
    args.run_func = args.executable = None
    return args


def _has_slots(args: argparse.Namespace) -> bool:
    """Whether hosts or a scheduler determine the number of ranks, so that -np is not needed."""
    return bool(args.hosts or args.hostfile or any(name in os.environ for name in reach.SCHEDULERS))


def run_program(arguments: Sequence[str], env: Mapping[str, str] | None = None, launcher: str = program.NAME) -> None:
    """Run horovodrun to its end; ValueError if it does not accept the arguments, RuntimeError if it fails.

    `launcher` is the program that starts the ranks, for the message.
    """
    out = sys.stdout if program.replaced(sys.stdout, sys.__stdout__, 1) else None
    with program.Program(arguments, os.environ if env is None else env, out, sys.stderr) as process:
        code = process.wait()
    if code == program.USAGE_ERROR:
        raise ValueError(process.words().removeprefix("horovodrun: "))
    if code != 0:
        raise RuntimeError(f"{launcher} ended with exit code {code}; its output:\n{process.words()}")


def _run(args: Any) -> list[Any] | None:
    """Run the job that `args`, of parse_args or _HorovodArgs, describes; the results by rank if it has a `run_func`.

    ValueError if it needs something that is not available, such as MPI. horovodrun chooses what starts the ranks.
    """
    return _run_elastic(args) if is_elastic(args) else _start(args, args.num_proc)


def _run_elastic(args: Any) -> list[Any] | None:
    """The same for a job whose hosts may change; there are `min_num_proc` results."""
    return _start(args, args.min_num_proc or args.num_proc)


def is_elastic(args: Any) -> bool:
    """Whether a job's hosts may change."""
    return args.host_discovery_script is not None or args.min_num_proc is not None


def _start(args: Any, count: int | None) -> list[Any] | None:
    arguments = options.to_arguments(args)
    if args.run_func is None:
        run_program([*arguments, *args.command], launcher=_launcher(args))
        return None
    listen, publish = reach.addresses(args)
    return call(
        args.run_func,
        arguments,
        count,
        executable=args.executable,
        listen=listen,
        publish=publish,
        elastic=is_elastic(args),
        launcher=_launcher(args),
    )


def _launcher(args: Any) -> str:
    """The program that was requested to start the ranks, for messages."""
    if is_elastic(args):
        return program.NAME
    return "mpirun" if args.use_mpi else "jsrun" if args.use_jsrun else program.NAME


def is_gloo_used(use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None) -> bool:
    """Whether such a job runs without MPI."""
    return bool(use_gloo) or not (use_mpi or use_jsrun or mpi_built())


def run_controller(
    use_gloo: bool | None,
    gloo_run: Callable[[], Any],
    use_mpi: bool | None,
    mpi_run: Callable[[], Any],
    use_jsrun: bool | None,
    js_run: Callable[[], Any],
    verbosity: int | None,
) -> Any:
    """Call the one of the three functions that fits the request and the build; ValueError if none does."""
    verbose = verbosity is not None and verbosity >= 2
    if use_gloo:
        return _needing(gloo_built(verbose), "the built-in transport", gloo_run)
    if use_mpi:
        return _needing(mpi_built(verbose), "MPI", mpi_run)
    if use_jsrun:
        if not lsf.LSFUtils.using_lsf():
            raise ValueError("jsrun was requested, but this is not an LSF job")
        return _needing(mpi_built(verbose), "MPI", js_run)
    if mpi_built(verbose):
        return js_run() if lsf.LSFUtils.using_lsf() and lsf.is_jsrun_installed() else mpi_run()
    return _needing(gloo_built(verbose), "MPI or the built-in transport", gloo_run)


def _needing(there: Any, what: str, function: Callable[[], Any]) -> Any:
    if not there:
        raise ValueError(f"{what} is not available: horovodrun --check-build shows what is")
    return function()


if __name__ == "__main__":
    run_commandline()
