"""Process groups that know their ranks and never communicate. One process poses as any rank of any world."""

import types

import torch.distributed

world = {"size": 1, "rank": 0}


def pose_as(rank, size=None):
    world["rank"] = rank
    if size is not None:
        world["size"] = size


class Group:
    def __init__(self, ranks):
        self.ranks = list(ranks)

    def size(self):
        return len(self.ranks)

    def rank(self):
        return self.ranks.index(world["rank"]) if world["rank"] in self.ranks else -1

    def name(self):
        return "stand-in"


def ranks_of(group):
    return group.ranks if isinstance(group, Group) else range(world["size"])


def rank_in(group):
    return group.rank() if isinstance(group, Group) else world["rank"]


def new_group(ranks=None, *_, **__):
    """As torch's: a rank that does not belong to the group receives something that is no group."""
    ranks = range(world["size"]) if ranks is None else ranks
    return Group(ranks) if world["rank"] in ranks else None


class NcclOptions:
    """Options of a communicator, which nothing reads: torch's own class calls NCCL, of which there are symbols alone."""

    def __init__(self, **_):
        self.config = types.SimpleNamespace()


def install():
    torch.distributed.ProcessGroupNCCL = types.SimpleNamespace(Options=NcclOptions)
    answers = {
        "is_available": lambda: True, "is_initialized": lambda: True, "new_group": new_group, "get_backend": lambda *_: "nccl",
        "get_world_size": lambda group=None: len(ranks_of(group)), "get_rank": lambda group=None: rank_in(group),
        "get_process_group_ranks": lambda group=None: list(ranks_of(group)), "get_global_rank": lambda group, rank: ranks_of(group)[rank],
        "get_group_rank": lambda group, rank: ranks_of(group).index(rank),
    }
    for name in ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "barrier", "broadcast", "reduce_scatter_tensor"):
        answers[name] = lambda *_, **__: None
    for name, answer in answers.items():
        setattr(torch.distributed, name, answer)
