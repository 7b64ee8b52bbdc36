"""What random programs are made of, as plain data, and how a seed becomes a job.

A job has processes that form one world after the other and run programs in each. A program is a list of phases, which
all ranks go through in the same order; what a phase leaves open (order, threads, time) every rank decides for itself.
All ranks have the same job, so that each can compute what every other one does.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

import operations
from operations import Operation

Ranks = tuple[int, ...]

# Situations that can be left out, to see whether a failure has to do with them.
SWITCHES = {
    "unequal_masks": "the ranks of a host may run on different cores",
    "unequal_spin": "HOROVOD_SPIN_US differs between ranks",
    "unequal_shapes": "knobs that shape plans differ: init refuses that on all ranks, or results are right",
    "remove_in_use": "operations are submitted on a process set while it is being removed",
    "shutdown_inside": "the world is shut down while another thread is inside an operation",
}
ENABLED: frozenset[str] = frozenset(SWITCHES)


@dataclass(frozen=True)
class Phase:
    """One part of a program.

    overlap: the operations of all lanes are in flight together, in any order, from any thread
    lanes:   one thread for each lane, which waits for each operation
    add:     a process set is added while the operations are in flight
    remove:  the same; those on the set that goes may fail
    join:    each rank takes part in the first `counts[rank]` operations only, and joins
    """

    kind: str
    lanes: tuple[tuple[Operation, ...], ...] = ()
    ranks: Ranks = ()
    counts: tuple[int, ...] = ()
    repeat: int = 1


@dataclass(frozen=True)
class Program:
    """Some phases; the sets are those that exist when it begins."""

    phases: tuple[Phase, ...]
    sets: tuple[Ranks, ...]


@dataclass(frozen=True)
class World:
    """Who forms it, how, and what it runs."""

    members: tuple[int, ...]  # processes of the job; the place here is the rank
    hosts: tuple[int, ...]  # ranks of each pretended host
    knobs: dict[str, str]
    own_knobs: tuple[dict[str, str], ...]  # of each rank
    cores: tuple[tuple[int, ...], ...]  # of each rank; places among the cores that there are
    static_sets: tuple[Ranks, ...]
    programs: tuple[Program, ...]
    ending: str  # barrier, allreduce, pending, inside
    victims: dict[int, str]  # ranks that are lost on the way: kill or freeze
    victim_program: int  # from which on
    may_be_refused: bool


@dataclass(frozen=True)
class Job:
    name: str  # SEED.NUMBER
    size: int
    worlds: tuple[World, ...]
    stops: bool  # processes are stopped for moments

    def programs(self) -> int:
        return sum(len(world.programs) for world in self.worlds)


@dataclass(frozen=True)
class Limits:
    """What operations of a world may be like."""

    largest: int  # bytes of a tensor
    hosts: int


class _Maker:
    """Makes the programs of one world: knows which sets exist."""

    def __init__(self, chance: random.Random, size: int, limits: Limits) -> None:
        self._chance = chance
        self._size = size
        self._limits = limits
        self.sets: list[Ranks] = []
        self._keys = chance.randrange(1 << 20)
        self._same_numbers = True  # all ranks have issued the same number of operations, so unnamed ones match

    def program(self) -> Program:
        before = tuple(self.sets)
        phases = tuple(self._phase() for _ in range(self._chance.choice((1, 1, 2, 2, 3, 4))))
        return Program(phases, before)

    def new_set(self) -> Ranks | None:
        """Ranks that are no set yet; None when there is none, or there are enough."""
        count = self._chance.randint(1, max(1, self._size - 1))
        ranks = tuple(sorted(self._chance.sample(range(self._size), count)))
        return None if self._size == 1 or ranks in self.sets or len(self.sets) >= 4 else ranks

    def _phase(self) -> Phase:
        kind = self._chance.choices(("overlap", "lanes", "add", "remove", "join"), (50, 25, 10, 8, 7))[0]
        if kind == "add":
            ranks = self.new_set()
            if ranks is not None:
                lanes = self._overlapping(0, 4)
                self.sets.append(ranks)
                return Phase("add", lanes, ranks)
        if kind == "remove" and self.sets:
            ranks = self._chance.choice(self.sets)
            others = [each for each in self.sets if each != ranks]
            in_use = "remove_in_use" in ENABLED and self._chance.random() < 0.7
            lanes = self._overlapping(1, 4, [ranks] if in_use else others)
            self.sets = others
            return Phase("remove", lanes, ranks)
        if kind == "join":
            return self._join()
        if kind == "lanes":
            return self._lanes()
        return Phase("overlap", self._overlapping(1, 12), repeat=self._chance.choice((1, 1, 1, 2, 4)))

    def _overlapping(self, least: int, most: int, sets: list[Ranks] | None = None) -> tuple[tuple[Operation, ...], ...]:
        names = operations.names(self._chance)
        count = self._chance.randint(least, most)
        sets = self.sets if sets is None else sets
        return (tuple(self._operation(next(names), sets, waits=False) for _ in range(count)),)

    def _lanes(self) -> Phase:
        """Unnamed operations have to come in the same order on all ranks: they are for a single lane."""
        lanes = self._chance.choice((1, 1, 1, 2, 3))
        names = operations.names(self._chance)
        unnamed = lanes == 1 and self._same_numbers and self._chance.random() < 0.3
        made = tuple(
            tuple(
                self._operation(
                    None if unnamed else next(names), [] if unnamed else self.sets, waits=True, first_lane=lane == 0
                )
                for _ in range(self._chance.randint(1, 6))
            )
            for lane in range(lanes)
        )
        return Phase("lanes", made, repeat=self._chance.choice((1, 1, 2, 3)))

    def _join(self) -> Phase:
        names = operations.names(self._chance)
        most = self._chance.randint(0, 4)
        self._same_numbers = False
        counts = [self._chance.randint(0, most) for _ in range(self._size)]
        counts[self._chance.randrange(self._size)] = most
        made = tuple(
            operations.allreduce(self._chance, self._key(), next(names), self._world(), self._limits, joined=True)
            for _ in range(most)
        )
        return Phase("join", (made,), counts=tuple(counts))

    def _operation(self, name: str | None, sets: list[Ranks], waits: bool, first_lane: bool = False) -> Operation:
        is_world = not sets or self._chance.random() < 0.6
        members = self._world() if is_world else self._chance.choice(sets)
        self._same_numbers = self._same_numbers and is_world
        make = operations.choose_verb(self._chance, waits, first_lane)
        return make(self._chance, self._key(), name, members, self._limits, is_world=is_world)

    def _world(self) -> Ranks:
        return tuple(range(self._size))

    def _key(self) -> int:
        self._keys += 1
        return self._keys


def make_job(name: str, sizes: tuple[int, ...], long: bool = False) -> Job:
    """The job of a name; a long one stays the same processes for a thousand programs."""
    chance = random.Random(name)
    size = chance.choice(sizes)
    loses = not long and size > 1 and chance.random() < 0.2
    members = tuple(range(size))
    worlds = []
    count = 120 if long else chance.randint(2, 6)
    losing = chance.randrange(count) if loses else -1
    for number in range(count):
        world = _make_world(chance, members, chance.randint(4, 12), number == losing)
        worlds.append(world)
        members = tuple(process for rank, process in enumerate(members) if rank not in world.victims)
    return Job(name, size, tuple(worlds), stops=chance.random() < 0.15)


def _make_world(chance: random.Random, members: tuple[int, ...], programs: int, loses: bool) -> World:
    size = len(members)
    hosts = _hosts(chance, size)
    knobs, largest = _knobs(chance, len(hosts))
    own = tuple(_own_knobs(chance) for _ in members)
    # Of several hosts only the one whose ranks differ is told; the others wait until the start time-out is over.
    refused = "unequal_shapes" in ENABLED and len(hosts) == 1 and chance.random() < 0.15
    if refused:
        own = tuple(each | _shaping_knobs(chance) for each in own)
    maker = _Maker(chance, size, Limits(largest, len(hosts)))
    for _ in range(chance.choice((0, 0, 1, 2))):
        ranks = maker.new_set()
        if ranks is not None:
            maker.sets.append(ranks)
    static = tuple(maker.sets)
    endings = ["barrier", "allreduce", "pending", *(("inside",) if "shutdown_inside" in ENABLED else ())]
    victims = _victims(chance, size, len(hosts), knobs) if loses else {}
    return World(
        members=members,
        hosts=hosts,
        knobs=knobs,
        own_knobs=own,
        cores=_cores(chance, size),
        static_sets=static,
        programs=tuple(maker.program() for _ in range(programs)),
        ending=chance.choice(endings),
        victims=victims,
        victim_program=chance.randrange(programs),
        may_be_refused=refused,
    )


def _victims(chance: random.Random, size: int, hosts: int, knobs: dict[str, str]) -> dict[int, str]:
    """Who is only stopped is noticed by its silence, which worlds of several hosts listen for."""
    ranks = chance.sample(range(size), chance.choice((1, 1, 1, chance.randint(1, size - 1))))
    if hosts > 1 and chance.random() < 0.15:
        knobs |= {"HOROVOD_SILENCE_SECONDS": "1", "HOROVOD_HEARTBEAT_SECONDS": "0.2"}
        return dict.fromkeys(ranks, "freeze")
    return dict.fromkeys(ranks, "kill")


def _hosts(chance: random.Random, size: int) -> tuple[int, ...]:
    if size == 1 or chance.random() < 0.6:
        return (size,)
    hosts: list[int] = []
    while sum(hosts) < size:
        hosts.append(chance.randint(1, size - sum(hosts)))
    return tuple(hosts)


def _cores(chance: random.Random, size: int) -> tuple[tuple[int, ...], ...]:
    choices = ((0, 1), (0, 1), (0, 1), (0,), (1,))
    if "unequal_masks" in ENABLED and chance.random() < 0.3:
        return tuple(chance.choice(choices) for _ in range(size))
    return (chance.choice(choices),) * size


def _own_knobs(chance: random.Random) -> dict[str, str]:
    """What each rank may decide for itself."""
    knobs = {}
    if chance.random() < 0.3:
        knobs["HOROVOD_YIELD_US"] = chance.choice(("0", "10", "200", "1000"))
    if "unequal_spin" in ENABLED and chance.random() < 0.3:
        knobs["HOROVOD_SPIN_US"] = chance.choice(("0", "5", "100"))
    return knobs


def _shaping_knobs(chance: random.Random) -> dict[str, str]:
    chosen = {
        "HOROVOD_SHM_CHUNK_BYTES": chance.choice(("64", "192", "4096", "65600", "131072")),
        "HOROVOD_SHM_CHUNKS": chance.choice(("1", "2", "3", "16", "16")),
        "HOROVOD_SHM_RING_BYTES": chance.choice(("65536", "131072", "4194304")),
        "HOROVOD_ONE_SHOT_LIMIT": chance.choice(("0", "64", "1000", "32768", "65536")),
        "HOROVOD_FUSION_THRESHOLD": chance.choice(("0", "64", "1000", "65536", "134217728")),
        "HOROVOD_CACHE_CAPACITY": chance.choice(("0", "1", "3", "16", "1024")),
        "HOROVOD_CYCLE_TIME": chance.choice(("0", "0", "0.2", "1")),
        "HOROVOD_DISABLE_GROUP_FUSION": chance.choice(("0", "1")),
        "HOROVOD_SPIN_US": chance.choice(("0", "20", "100")),
    }
    return {name: value for name, value in chosen.items() if chance.random() < 0.4}


def _knobs(chance: random.Random, hosts: int) -> tuple[dict[str, str], int]:
    """Knobs that all ranks share, and the largest tensor that goes through such a world in good time."""
    knobs = _shaping_knobs(chance)
    if hosts > 1:
        for name in ("HIERARCHICAL_ALLREDUCE", "HIERARCHICAL_ALLGATHER", "TORUS_ALLREDUCE"):
            if chance.random() < 0.3:
                knobs[f"HOROVOD_{name}"] = chance.choice(("0", "1"))
        knobs["HOROVOD_TCP_STREAMS"] = chance.choice(("0", "0", "1", "2", "3"))
        knobs["HOROVOD_SILENCE_SECONDS"] = "60"  # a busy machine is no fault
    if chance.random() < 0.03:
        knobs["HOROVOD_TIMELINE"] = "/dev/null"
    if chance.random() < 0.05:
        knobs |= {
            "HOROVOD_AUTOTUNE": "1",
            "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
            "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
        }
    chunk = int(knobs.get("HOROVOD_SHM_CHUNK_BYTES", "131072"))
    return knobs, chunk * 400 if chunk < 65536 else 1 << 25


def narrow(job: Job, world: int | None, program: int | None) -> Job:
    """The job with one world only, or with one program of it; sets that were there before exist from the beginning."""
    if world is None:
        return job
    kept = job.worlds[world]
    if program is not None:
        only = kept.programs[program]
        kept = dataclasses.replace(kept, programs=(only,), static_sets=only.sets, victim_program=0)
        if program < job.worlds[world].victim_program:
            kept = dataclasses.replace(kept, victims={})
    return dataclasses.replace(job, size=len(kept.members), worlds=(with_processes(kept),))


def with_processes(world: World) -> World:
    """The same world, of processes that are numbered from 0."""
    return dataclasses.replace(world, members=tuple(range(len(world.members))))
