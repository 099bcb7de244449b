"""A running server as keys of the deployment file, so that `predict` and `choose` can take its URL in place of one."""

from hwmodel.errors import InputError
from simulator.deployment.counters import read_counters
from validate.launch.account import Account
from validate.launch.deployment_keys import LaunchKeys, keys_of_account
from validate.launch.known import Known
from validate.launch.server import account_of_server

# What a server tells of these is what it made of its launch, speculation included: another draft length gets others.
_CONSEQUENCES = ("async_scheduling", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")


def deployment_from_server(url: str, api_key: str | None = None, version: str | None = None) -> LaunchKeys:
    """The keys that a running server tells or shows, its acceptance since its start among them."""
    account = account_of_server(url, api_key, Known(version=version))
    for name in _CONSEQUENCES:
        setattr(account.settings, name, None)
    keys = keys_of_account(account)
    if account.settings.tensor_parallel_size is None:
        keys.notes.append(
            "the server does not tell its parallel sizes: TP 1 is assumed; --set engine.tensor_parallel_size=N"
        )
    keys.notes += [f"inferred: {name}: {why}" for name, why in account.inferred.items()]
    if account.speculation is not None:
        _add_acceptance(account, keys)
    elif account.inferred.get("speculative_config", "").startswith("unknown"):
        keys.notes.append("whether the server speculates now is not known: it is taken as a server that does not")
    return keys


def _add_acceptance(account: Account, keys: LaunchKeys) -> None:
    counters = (account.server or {}).get("acceptance_counters")
    if not counters:
        keys.notes.append("nothing has been drafted since the server's start: acceptance is a prior")
        return
    try:
        read_counters(counters)
    except InputError as error:
        keys.notes.append(f"the server's acceptance counters are not used: {error}")
        return
    keys.tables["speculation"]["acceptance"] = {"counters": counters}
    drafts = f"{counters['num_drafts']:.0f} drafts"
    keys.notes.append(f"acceptance: the server's own counters since its start, {drafts} of its real traffic")
